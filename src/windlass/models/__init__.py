"""Models: a folder per wire dialect, local models, and the vendors as data.

The names here are public. Each is loaded when it is first used, because the HTTP client and the
dialects cost more time to import than the rest of the package.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.models.dialect import Dialect, ReplyReader, WireRequest
    from windlass.models.http.model import HttpModel, ModelEndpoint
    from windlass.models.http.provider_errors import RequestTarget
    from windlass.models.local.model import LocalModel
    from windlass.models.options import Effort, ModelOptions, ToolProtocol
    from windlass.models.prices import ModelListing, describe_price_source, find_listing
    from windlass.models.qwen.conversations import QwenConversation, from_qwen_messages
    from windlass.models.qwen.qwen_messages import to_qwen_messages
    from windlass.models.qwen.settings import model_from_qwen
    from windlass.models.reply_cache import CachedModel
    from windlass.models.resolve import resolve_model
    from windlass.models.token_counts import TokenCount, count_tokens, estimate_text_tokens
    from windlass.models.vendors import VendorConfig, load_vendors

__all__ = [
    "CachedModel",
    "Dialect",
    "Effort",
    "HttpModel",
    "LocalModel",
    "ModelEndpoint",
    "ModelListing",
    "ModelOptions",
    "QwenConversation",
    "ReplyReader",
    "RequestTarget",
    "TokenCount",
    "ToolProtocol",
    "VendorConfig",
    "WireRequest",
    "count_tokens",
    "describe_price_source",
    "estimate_text_tokens",
    "find_listing",
    "from_qwen_messages",
    "load_vendors",
    "model_from_qwen",
    "resolve_model",
    "to_qwen_messages",
]

LAZY_MODULES: LazyModules = {
    "CachedModel": "windlass.models.reply_cache",
    "Dialect": "windlass.models.dialect",
    "Effort": "windlass.models.options",
    "HttpModel": "windlass.models.http.model",
    "LocalModel": "windlass.models.local.model",
    "ModelEndpoint": "windlass.models.http.model",
    "ModelListing": "windlass.models.prices",
    "ModelOptions": "windlass.models.options",
    "QwenConversation": "windlass.models.qwen.conversations",
    "ReplyReader": "windlass.models.dialect",
    "RequestTarget": "windlass.models.http.provider_errors",
    "TokenCount": "windlass.models.token_counts",
    "ToolProtocol": "windlass.models.options",
    "VendorConfig": "windlass.models.vendors",
    "WireRequest": "windlass.models.dialect",
    "count_tokens": "windlass.models.token_counts",
    "describe_price_source": "windlass.models.prices",
    "estimate_text_tokens": "windlass.models.token_counts",
    "find_listing": "windlass.models.prices",
    "from_qwen_messages": "windlass.models.qwen.conversations",
    "load_vendors": "windlass.models.vendors",
    "model_from_qwen": "windlass.models.qwen.settings",
    "resolve_model": "windlass.models.resolve",
    "to_qwen_messages": "windlass.models.qwen.qwen_messages",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
