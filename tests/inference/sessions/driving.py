"""Sessions of a managed client over an engine that says what it is told to."""

from inference.managed import ManagedClient
from inference.scripted_engine import ScriptedEngine
from tests.inference.sessions.families import FAMILIES, load
from trajectories.messages import Message
from trajectories.turn import SamplingParams

BY_NAME = {family.name: family for family in FAMILIES}
SAMPLING = SamplingParams(max_tokens=400)
ASK = [Message.user("question")]
CALL = '<tool_call>\n{"name":"terminal","arguments":{"command":"ls"}}\n</tool_call>'


def ids(text, family="hermes"):
    return load(BY_NAME[family]).files.tokenizer.encode(text, add_special_tokens=False).ids


def said(session_ids, family="hermes"):
    return load(BY_NAME[family]).encoder.decode(session_ids)


async def client_of(*outputs, family="hermes", script=None, **options):
    loaded = load(BY_NAME[family])
    encoded = [output if isinstance(output, Exception) else ids(output, family) for output in outputs]
    engine = ScriptedEngine(script or encoded, **options.pop("engine", {}))
    client = ManagedClient(engine, loaded.files, **options)
    await client.start()
    return client


def result(content="a.txt"):
    return Message.tool(content, call_id="call_0", name="terminal")
