"""What one provider needs and the others do not: imported when a model of that provider is made.

A program speaks to one or two providers. It does not wait for the wire formats of all the others,
for the credentials of clouds, or for the server of models on this machine.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.models.anthropic.messages import AnthropicMessages as AnthropicMessages
    from windlass.models.bedrock.converse import BedrockConverse as BedrockConverse
    from windlass.models.cloud.aws import (
        bedrock_url as bedrock_url,
        find_aws_signer as find_aws_signer,
        find_region as find_region,
    )
    from windlass.models.cloud.azure import (
        azure_address as azure_address,
        find_azure_signer as find_azure_signer,
    )
    from windlass.models.cloud.google import (
        find_google_identity as find_google_identity,
        vertex_address as vertex_address,
    )
    from windlass.models.gemini.generate import GeminiDialect as GeminiDialect
    from windlass.models.local.model import build_local_model as build_local_model
    from windlass.models.openai.responses import OpenAIResponses as OpenAIResponses
    from windlass.models.text_protocols.chat_dialects import (
        build_chat_dialect as build_chat_dialect,
        read_model_size as read_model_size,
    )

LAZY_MODULES: LazyModules = {
    "windlass.models.anthropic.messages": "AnthropicMessages",
    "windlass.models.bedrock.converse": "BedrockConverse",
    "windlass.models.cloud.aws": "bedrock_url find_aws_signer find_region",
    "windlass.models.cloud.azure": "azure_address find_azure_signer",
    "windlass.models.cloud.google": "find_google_identity vertex_address",
    "windlass.models.gemini.generate": "GeminiDialect",
    "windlass.models.local.model": "build_local_model",
    "windlass.models.openai.responses": "OpenAIResponses",
    "windlass.models.text_protocols.chat_dialects": "build_chat_dialect read_model_size",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
