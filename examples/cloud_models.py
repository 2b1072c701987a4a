"""How is a model of a cloud asked? By its name, with the credentials of that cloud."""

import asyncio

from windlass import Agent
from windlass.models import resolve_model
from windlass.testing import FaultServer
from windlass.testing.bedrock_wire import bedrock_answer, text_frames
from windlass.testing.cloud_services import AwsService

MODEL = "bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0"
# Usually these come from the environment or from a profile, and `Agent(MODEL)` is enough.
CREDENTIALS = {
    "AWS_REGION": "eu-central-1",
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "an-example-key-of-forty-characters-0000",
}


async def main() -> None:
    # A stand-in for Bedrock: it checks the signature of each request, as AWS does.
    region, key_id, secret = CREDENTIALS.values()
    answer = bedrock_answer(*text_frames("Two ", "tonnes."))
    async with FaultServer(always=AwsService(key_id, secret, region, answer)) as server:
        model = resolve_model(MODEL, environ=CREDENTIALS, base_url=server.url)
        result = await Agent(model).run("What does the jib weigh?")
    print(result.text, f"({result.model_calls} signed request)")


asyncio.run(main())
