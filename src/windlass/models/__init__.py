"""Models: a folder per wire dialect, local models, and the vendors as data.

The names here are public. Each is loaded when it is first used, because the HTTP client and the
dialects cost more time to import than the rest of the package.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.models.dialect import (
        Dialect as Dialect,
        ReplyReader as ReplyReader,
        WireRequest as WireRequest,
    )
    from windlass.models.http.model import HttpModel as HttpModel, ModelEndpoint as ModelEndpoint
    from windlass.models.http.provider_errors import RequestTarget as RequestTarget
    from windlass.models.local.model import LocalModel as LocalModel
    from windlass.models.options import (
        Effort as Effort,
        ModelOptions as ModelOptions,
        ToolProtocol as ToolProtocol,
    )
    from windlass.models.prices import (
        ModelListing as ModelListing,
        describe_price_source as describe_price_source,
        find_listing as find_listing,
    )
    from windlass.models.qwen.conversations import (
        QwenConversation as QwenConversation,
        from_qwen_messages as from_qwen_messages,
    )
    from windlass.models.qwen.qwen_messages import to_qwen_messages as to_qwen_messages
    from windlass.models.qwen.settings import model_from_qwen as model_from_qwen
    from windlass.models.reply_cache import CachedModel as CachedModel
    from windlass.models.resolve import resolve_model as resolve_model
    from windlass.models.token_counts import (
        TokenCount as TokenCount,
        count_tokens as count_tokens,
        estimate_text_tokens as estimate_text_tokens,
    )
    from windlass.models.vendors import VendorConfig as VendorConfig, load_vendors as load_vendors

LAZY_MODULES: LazyModules = {
    "windlass.models.dialect": "Dialect ReplyReader WireRequest",
    "windlass.models.http.model": "HttpModel ModelEndpoint",
    "windlass.models.http.provider_errors": "RequestTarget",
    "windlass.models.local.model": "LocalModel",
    "windlass.models.options": "Effort ModelOptions ToolProtocol",
    "windlass.models.prices": "ModelListing describe_price_source find_listing",
    "windlass.models.qwen.conversations": "QwenConversation from_qwen_messages",
    "windlass.models.qwen.qwen_messages": "to_qwen_messages",
    "windlass.models.qwen.settings": "model_from_qwen",
    "windlass.models.reply_cache": "CachedModel",
    "windlass.models.resolve": "resolve_model",
    "windlass.models.token_counts": "TokenCount count_tokens estimate_text_tokens",
    "windlass.models.vendors": "VendorConfig load_vendors",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
