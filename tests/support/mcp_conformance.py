"""The server that the official conformance suite wants: its fixed tools, prompts and resources."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.message import ServerMessageMetadata

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5Erk"
    "JggolpZw=="
)
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
Context = ServerRequestContext[Any, Any]
Content = list[types.ContentBlock]
OPEN: dict[str, Any] = {"type": "object", "properties": {}}


def text(words: str) -> types.TextContent:
    return types.TextContent(text=words)


def image() -> types.ImageContent:
    return types.ImageContent(data=PNG, mime_type="image/png")


def resource(uri: str, words: str, kind: str = "text/plain") -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=kind, text=words)
    return types.EmbeddedResource(resource=contents)


async def simple_text(ctx: Context, arguments: dict[str, Any]) -> Content:
    return [text("This is a simple text response for testing.")]


async def image_content(ctx: Context, arguments: dict[str, Any]) -> Content:
    return [image()]


async def audio_content(ctx: Context, arguments: dict[str, Any]) -> Content:
    return [types.AudioContent(data=WAV, mime_type="audio/wav")]


async def embedded_resource(ctx: Context, arguments: dict[str, Any]) -> Content:
    return [resource("test://embedded-resource", "This is an embedded resource content.")]


async def multiple_content_types(ctx: Context, arguments: dict[str, Any]) -> Content:
    data = '{"test":"data","value":123}'
    return [
        text("Multiple content types test:"),
        image(),
        resource("test://mixed-content-resource", data, "application/json"),
    ]


async def with_logging(ctx: Context, arguments: dict[str, Any]) -> Content:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        params = types.LoggingMessageNotificationParams(level="info", data=words)
        await ctx.session.send_notification(
            types.LoggingMessageNotification(params=params), related_request_id=ctx.request_id
        )
        await asyncio.sleep(0.05)
    return [text("Logged.")]


async def with_progress(ctx: Context, arguments: dict[str, Any]) -> Content:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
        await asyncio.sleep(0.05)
    return [text("Done.")]


async def error_handling(ctx: Context, arguments: dict[str, Any]) -> Content:
    raise RuntimeError("This tool intentionally returns an error for testing")


async def sampling(ctx: Context, arguments: dict[str, Any]) -> Content:
    message = types.SamplingMessage(role="user", content=text(arguments["prompt"]))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=100)
    # On the stream of the call: a client may not have opened its general stream yet, and the SDK
    # drops what is meant for that one.
    result = await ctx.session.send_request(
        types.CreateMessageRequest(params=params),
        types.CreateMessageResult,
        metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
    )
    return [text(f"LLM response: {getattr(result.content, 'text', '')}")]


def ask_for(**properties: dict[str, Any]) -> Callable[..., Awaitable[Content]]:
    async def ask(ctx: Context, arguments: dict[str, Any]) -> Content:
        schema = {"type": "object", "properties": properties}
        words = arguments.get("message", "Please fill this in.")
        result = await ctx.session.elicit_form(words, schema, related_request_id=ctx.request_id)
        return [text(f"Elicitation completed: action={result.action}, content={result.content}")]

    return ask


async def reconnection(ctx: Context, arguments: dict[str, Any]) -> Content:
    """Close the stream in the middle: the client comes back for the result."""
    if ctx.close_sse_stream is not None:
        await asyncio.sleep(0.1)
        await ctx.close_sse_stream()
        await asyncio.sleep(0.1)
    return [text("Reconnection test completed successfully.")]


THREE = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
STRING = {"type": "string"}
TOOLS: dict[str, Callable[..., Awaitable[Content]]] = {
    "test_simple_text": simple_text,
    "test_image_content": image_content,
    "test_audio_content": audio_content,
    "test_embedded_resource": embedded_resource,
    "test_multiple_content_types": multiple_content_types,
    "test_tool_with_logging": with_logging,
    "test_tool_with_progress": with_progress,
    "test_error_handling": error_handling,
    "test_sampling": sampling,
    "test_elicitation": ask_for(username=STRING, email=STRING),
    "test_elicitation_sep1034_defaults": ask_for(
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        verified={"type": "boolean", "default": True},
    ),
    "test_elicitation_sep1330_enums": ask_for(
        untitledSingle={"type": "string", "enum": THREE},
        titledSingle={"type": "string", "oneOf": TITLED},
        legacyEnum={
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        untitledMulti={"type": "array", "items": {"type": "string", "enum": THREE}},
        titledMulti={"type": "array", "items": {"anyOf": TITLED}},
    ),
    "test_reconnection": reconnection,
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "test_sampling": {"type": "object", "properties": {"prompt": STRING}},
    "test_elicitation": {"type": "object", "properties": {"message": STRING}},
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"type": "object", "properties": {"street": STRING, "city": STRING}}},
        "properties": {"name": STRING, "address": {"$ref": "#/$defs/address"}},
        "additionalProperties": False,
    },
}


async def list_tools(ctx: Context, params: Any) -> types.ListToolsResult:
    names = dict.fromkeys((*TOOLS, *SCHEMAS))
    return types.ListToolsResult(
        tools=[
            types.Tool(name=name, description=name, input_schema=SCHEMAS.get(name, OPEN))
            for name in names
        ]
    )


async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    try:
        return types.CallToolResult(content=await TOOLS[params.name](ctx, params.arguments or {}))
    except RuntimeError as error:
        return types.CallToolResult(content=[text(str(error))], is_error=True)


async def list_resources(ctx: Context, params: Any) -> types.ListResourcesResult:
    listed = {
        "test://static-text": "text/plain",
        "test://static-binary": "image/png",
        "test://watched-resource": "text/plain",
    }
    return types.ListResourcesResult(
        resources=[
            types.Resource(uri=uri, name=uri, description=uri, mime_type=kind)
            for uri, kind in listed.items()
        ]
    )


async def list_templates(ctx: Context, params: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(uri_template="test://template/{id}/data", name="template")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(
    ctx: Context, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    uri = str(params.uri)
    if uri == "test://static-binary":
        blob = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
        return types.ReadResourceResult(contents=[blob])
    words = "This is the content of the static text resource."
    kind = "text/plain"
    if uri.startswith("test://template/"):
        number = uri.split("/")[3]
        words = f'{{"id":"{number}","templateTest":true,"data":"Data for ID: {number}"}}'
        kind = "application/json"
    contents = types.TextResourceContents(uri=uri, mime_type=kind, text=words)
    return types.ReadResourceResult(contents=[contents])


def argument(name: str) -> types.PromptArgument:
    return types.PromptArgument(name=name, description=name, required=True)


PROMPTS = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": [argument("arg1"), argument("arg2")],
    "test_prompt_with_embedded_resource": [argument("resourceUri")],
    "test_prompt_with_image": [],
}


async def list_prompts(ctx: Context, params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(name=name, description=name, arguments=arguments)
            for name, arguments in PROMPTS.items()
        ]
    )


async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    given = params.arguments or {}
    content: Content = [text("This is a simple prompt for testing.")]
    match params.name:
        case "test_prompt_with_arguments":
            words = f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"
            content = [text(words)]
        case "test_prompt_with_embedded_resource":
            embedded = resource(given["resourceUri"], "Embedded resource content for testing.")
            content = [embedded, text("Please process the embedded resource above.")]
        case "test_prompt_with_image":
            content = [image(), text("Please analyze the image above.")]
        case _:
            pass
    return types.GetPromptResult(
        messages=[types.PromptMessage(role="user", content=part) for part in content]
    )


async def complete(ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    values = types.Completion(values=["paris", "park", "party"], total=3, has_more=False)
    return types.CompleteResult(completion=values)


async def accept(ctx: Context, params: Any) -> types.EmptyResult:
    return types.EmptyResult()


def build_fixture() -> Server[Any]:
    """Return the server of the suite."""
    server: Server[Any] = Server(
        "conformance",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=accept,
        on_unsubscribe_resource=accept,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
    )
    # Older clients set a level for the log; the newest protocol has no such method.
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, accept)
    return server
