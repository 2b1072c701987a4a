"""What was said is exported only when that is asked for, and secrets never (O1)."""

import json
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from collector import OtlpServer, SpanCollector, attributes_of, otlp_server
from windlass import Agent, Allow, Deny, FailedByModel, ImagePart, Modify, TextPart, tool
from windlass.environ import captures_content
from windlass.journals.memory import MemoryJournal
from windlass.telemetry import Telemetry
from windlass.testing import (
    FixedGate,
    ScriptedModel,
    ScriptedReply,
    VirtualClock,
    call,
    fail,
    say,
    think,
)

pytestmark = pytest.mark.contract("O1")
CONTENT = {
    "gen_ai.system_instructions",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
}


@tool(effect="read")
async def weather(city: str) -> str:
    """Tell the weather."""
    return f"Rain in {city}."


def telemetry(collector: SpanCollector, *, content: bool | None) -> Telemetry:
    return Telemetry(
        content=content, tracer_provider=collector.tracers, meter_provider=collector.meters
    )


SCRIPT: list[ScriptedReply] = [
    [think("Let me look."), call("weather", {"city": "Ghent"})],
    [say("It rains.")],
]


async def test_content_when_it_is_asked_for(collector: SpanCollector, clock: VirtualClock) -> None:
    gate = FixedGate(lambda request: Modify({"city": "Bruges"}, "Ghent is out"))
    with ScriptedModel(SCRIPT) as model:
        agent = Agent(
            model,
            instructions="Be brief.",
            tools=[weather],
            gate=gate,
            clock=clock,
            telemetry=telemetry(collector, content=True),
        )
        await agent.run([TextPart("Well?"), ImagePart("image/png", b"\x89PNG")])
    run, first, ran, last = collector.spans
    said = _decode_attributes(run)
    asked = {
        "role": "user",
        "parts": [
            {"type": "text", "content": "Well?"},
            {"type": "blob", "modality": "image", "mime_type": "image/png"},
        ],
    }
    answer = {
        "role": "assistant",
        "parts": [{"type": "text", "content": "It rains."}],
        "finish_reason": "stop",
    }
    assert said["gen_ai.system_instructions"] == [{"type": "text", "content": "Be brief."}]
    assert said["gen_ai.input.messages"] == [asked]
    assert said["gen_ai.output.messages"] == [answer]
    assert said["gen_ai.tool.definitions"][0]["name"] == "weather"
    assert _decode_attributes(first)["gen_ai.input.messages"] == [asked]
    (reply,) = _decode_attributes(first)["gen_ai.output.messages"]
    assert reply["finish_reason"] == "tool_call"
    assert reply["parts"] == [
        {"type": "reasoning", "content": "Let me look."},
        {"type": "tool_call", "id": "c1_0", "name": "weather", "arguments": {"city": "Ghent"}},
    ]
    assert _decode_attributes(ran)["gen_ai.tool.call.arguments"] == {"city": "Bruges"}
    assert _decode_attributes(ran)["gen_ai.tool.call.result"] == "Rain in Bruges."
    shown = _decode_attributes(last)["gen_ai.input.messages"]
    assert [one["role"] for one in shown] == ["user", "assistant", "tool"]
    (given,) = shown[2]["parts"]
    assert given["id"] == "c1_0"
    assert given["type"] == "tool_call_response"
    assert "Rain in Bruges." in given["response"]


def _decode_attributes(span: Any) -> dict[str, Any]:
    return {
        name: json.loads(str(text)) for name, text in attributes_of(span).items() if name in CONTENT
    }


async def test_no_content_unless_it_is_asked_for(
    collector: SpanCollector, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable of the conventions asks for it; a plain no overrules it."""
    name = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    for setting, content, expected in (
        (None, None, False),
        ("NO_CONTENT", None, False),
        ("true", None, True),
        ("SPAN_ONLY", None, True),
        ("true", False, False),
        (None, True, True),
    ):
        monkeypatch.delenv(name, raising=False)
        if setting is not None:
            monkeypatch.setenv(name, setting)
        kept = SpanCollector()
        agent = Agent(
            ScriptedModel(SCRIPT),
            tools=[weather],
            clock=clock,
            telemetry=telemetry(kept, content=content),
        )
        await agent.run("Well?")
        found = {name for span in kept.spans for name in attributes_of(span)} & CONTENT
        assert bool(found) == expected, setting
    assert captures_content({name: "span_and_event"})
    assert not captures_content({name: "event_only"})


async def test_what_a_gate_withholds_is_not_told(
    collector: SpanCollector, clock: VirtualClock
) -> None:
    """A denied reply is in no span, though the model sees it in the next request."""
    gate = FixedGate(replies=lambda text: Deny("no") if "launch code" in text else Allow())
    with ScriptedModel(["The launch code is 7.", "I cannot say."]) as model:
        agent = Agent(model, gate=gate, clock=clock, telemetry=telemetry(collector, content=True))
        assert (await agent.run("Well?")).text == "I cannot say."
    everything = repr([attributes_of(span) for span in collector.spans])
    assert "launch code" not in everything
    assert "I cannot say." in everything
    first, last = collector.spans_named("chat model")
    assert "[withheld]" in str(attributes_of(first)["gen_ai.output.messages"])
    assert "gen_ai.response.time_to_first_chunk" not in attributes_of(last)


async def test_words_of_an_error_are_content(collector: SpanCollector, clock: VirtualClock) -> None:
    for content in (False, True):
        with ScriptedModel([[fail("bad_request", "you said: banana")]]) as model:
            agent = Agent(model, clock=clock, telemetry=telemetry(collector, content=content))
            with pytest.raises(FailedByModel):
                await agent.run("banana")
        descriptions = [span.status.description for span in collector.spans[-2:]]
        assert descriptions == (["you said: banana"] * 2 if content else [None, None])


async def test_the_second_run_of_a_session_knows_its_instructions(
    collector: SpanCollector, clock: VirtualClock
) -> None:
    agent = Agent(
        ScriptedModel(["One.", "Two."]),
        instructions="Count.",
        clock=clock,
        telemetry=telemetry(collector, content=True),
    )
    await agent.run("First", session="s")
    await agent.run("Then", session="s")
    last = collector.spans_named("chat model")[-1]
    assert "Count." in str(attributes_of(last)["gen_ai.system_instructions"])
    assert "First" in str(attributes_of(last)["gen_ai.input.messages"])
    assert (
        attributes_of(collector.spans_named("invoke_agent")[-1])["gen_ai.provider.name"]
        == "scripted"
    )


# ── over a real wire ─────────────────────────────────────────────────────────

CANARIES = {
    "given": "crm-canary-3141-abc",
    "environment": "env-canary-5510-xyz",
    "key-like": "sk-canary0123456789abcdefGHIJ",
}


async def _export_secret_run(server: OtlpServer, *, content: bool) -> None:
    """A run in which everything says all secrets, exported by OTLP."""
    everything = " ".join(CANARIES.values())
    tracers = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter(f"{server.url}/v1/traces")
    tracers.add_span_processor(BatchSpanProcessor(exporter))
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(f"{server.url}/v1/metrics"), export_interval_millis=3_600_000
    )
    meters = MeterProvider([reader], shutdown_on_exit=False)

    @tool(effect="read")
    async def leak(secret: str) -> str:
        """Say what nobody may hear."""
        return f"{secret} and {everything}"

    watching = Telemetry(content=content, tracer_provider=tracers, meter_provider=meters)
    clerk = Agent(
        ScriptedModel([call("leak", {"secret": everything}), f"Again {everything}"]),
        name="clerk",
        tools=[leak],
    )
    script: list[ScriptedReply] = [
        [think(everything), call("leak", {"secret": everything})],
        [call("clerk", {"task": everything})],
        [fail("server", everything)],
        f"All: {everything}",
    ]
    agent = Agent(
        ScriptedModel(script),
        name="boss",
        instructions=f"Never say {everything}",
        tools=[leak, clerk.as_tool()],
        secrets={"CRM": CANARIES["given"]},
        journal=MemoryJournal(),
        telemetry=watching,
    )
    await agent.run(f"Banana, and {everything}", context={"token": everything})
    tracers.shutdown()
    meters.shutdown()


@pytest.mark.realtime
@pytest.mark.parametrize("content", [False, True])
async def test_exported_bytes_hold_no_secret(
    monkeypatch: pytest.MonkeyPatch, *, content: bool
) -> None:
    """G8: with content and without, over the wire that collectors speak."""
    monkeypatch.setenv("CRM_API_TOKEN", CANARIES["environment"])
    with otlp_server() as server:
        await _export_secret_run(server, content=content)
    sent = b"".join(server.bodies)
    assert [name for name, value in CANARIES.items() if value.encode() in sent] == []
    assert (b"Banana" in sent) == content
    assert sorted(server.span_names) == sorted(
        ["invoke_agent boss", "invoke_agent clerk", *["chat model"] * 6]
        + ["execute_tool leak"] * 2
        + ["execute_tool clerk"]
    )
    assert server.metric_names == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.operation.time_to_first_chunk",
        "gen_ai.invoke_agent.duration",
        "gen_ai.execute_tool.duration",
    }
