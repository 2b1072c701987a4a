"""How tools are offered over chat completions: by the wire, in the text, or by a grammar."""

from windlass.models.dialect import Dialect, ToolProtocol
from windlass.models.openai.quirks import ChatQuirks
from windlass.models.text_protocols.grammar_calls import GrammarCalls
from windlass.models.text_protocols.plain_calls import NativeCalls
from windlass.models.text_protocols.text_calls import TextCalls


def build_chat_dialect(
    quirks: ChatQuirks, vendor: str, protocol: ToolProtocol | None = None
) -> Dialect:
    """The dialect of chat completions; what the caller asks for goes before the server's ways."""
    match protocol or quirks.tool_protocol:
        case "native":
            return NativeCalls(quirks, vendor)
        case "text":
            return TextCalls(quirks, vendor)
        case "grammar":
            return GrammarCalls(quirks, vendor)
