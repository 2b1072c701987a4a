"""What one provider needs and the others do not: imported when a model of that provider is made.

A program speaks to one or two providers. It does not wait for the wire formats of all the others,
for the credentials of clouds, or for the server of models on this machine.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.models.anthropic.messages import AnthropicMessages
    from windlass.models.bedrock.converse import BedrockConverse
    from windlass.models.cloud.aws import bedrock_url, find_aws_signer, find_region
    from windlass.models.cloud.azure import azure_address, find_azure_signer
    from windlass.models.cloud.google import find_google_identity, vertex_address
    from windlass.models.gemini.generate import GeminiDialect
    from windlass.models.local.model import build_local_model
    from windlass.models.openai.responses import OpenAIResponses
    from windlass.models.text_protocols.chat_dialects import build_chat_dialect, read_model_size

__all__ = [
    "AnthropicMessages",
    "BedrockConverse",
    "GeminiDialect",
    "OpenAIResponses",
    "azure_address",
    "bedrock_url",
    "build_chat_dialect",
    "build_local_model",
    "find_aws_signer",
    "find_azure_signer",
    "find_google_identity",
    "find_region",
    "read_model_size",
    "vertex_address",
]

LAZY_MODULES: LazyModules = {
    "AnthropicMessages": "windlass.models.anthropic.messages",
    "BedrockConverse": "windlass.models.bedrock.converse",
    "GeminiDialect": "windlass.models.gemini.generate",
    "OpenAIResponses": "windlass.models.openai.responses",
    "azure_address": "windlass.models.cloud.azure",
    "bedrock_url": "windlass.models.cloud.aws",
    "build_chat_dialect": "windlass.models.text_protocols.chat_dialects",
    "build_local_model": "windlass.models.local.model",
    "find_aws_signer": "windlass.models.cloud.aws",
    "find_azure_signer": "windlass.models.cloud.azure",
    "find_google_identity": "windlass.models.cloud.google",
    "find_region": "windlass.models.cloud.aws",
    "read_model_size": "windlass.models.text_protocols.chat_dialects",
    "vertex_address": "windlass.models.cloud.google",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
