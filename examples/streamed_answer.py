"""An LLM answer that is streamed to a browser, with a stop button.

Serve it with `uvicorn --app-dir examples streamed_answer:app`, and run its jobs in another terminal with
`glidemq worker --app-dir examples streamed_answer:mq`. Both use $GLIDEMQ_URL, or the embedded server if it is not set.
Then open http://127.0.0.1:8000. Reload the page during an answer: it continues, because the job runs elsewhere.
"""

import asyncio
from collections.abc import AsyncIterator

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse

from glidemq_async import GlideMQ, JobNotFound, JobStateError, current_job
from glidemq_async.integrations.fastapi import lifespan, stream_response

mq = GlideMQ(queue="answers")
app = FastAPI(lifespan=lifespan(mq))

PAGE = """<!doctype html>
<input id="question" value="Why is the sky blue?"><button id="ask">Ask</button><button id="stop">Stop</button>
<pre id="answer"></pre>
<script>
const answer = document.getElementById("answer");
let events;

function follow(id) {
  if (events) events.close();
  answer.textContent = "";
  events = new EventSource(`answers/${id}`);
  events.onmessage = event => answer.textContent += JSON.parse(event.data);
  events.addEventListener("restarted", () => answer.textContent = "");
  events.addEventListener("end", event => {
    events.close();
    answer.textContent += ` [${JSON.parse(event.data).state}]`;
  });
}

document.getElementById("ask").onclick = async () => {
  const question = document.getElementById("question").value;
  const reply = await fetch(`answers?question=${encodeURIComponent(question)}`, {method: "POST"});
  location.hash = (await reply.json()).id;
  follow(location.hash.slice(1));
};
document.getElementById("stop").onclick = () => fetch(`answers/${location.hash.slice(1)}/stop`, {method: "POST"});
if (location.hash) follow(location.hash.slice(1));
</script>
"""


async def tokens(question: str) -> AsyncIterator[str]:
    """Replace this with the client of your model."""
    for word in f"You asked: {question} That is a long story .".split() + ["and it goes on"] * 50:
        yield f"{word} "
        await asyncio.sleep(0.05)


@mq.task(attempts=3)
async def answer(question: str) -> str:
    job, text = current_job(), ""
    async for token in tokens(question):
        await job.stream(token)
        text += token
    return text


@app.get("/", response_class=HTMLResponse)
async def page() -> str:
    return PAGE


@app.post("/answers", status_code=202)
async def ask(question: str) -> dict[str, str]:
    return {"id": (await answer.add(question)).id}


@app.get("/answers/{job_id}")
async def stream(job_id: str) -> Response:
    return stream_response(mq.queue("answers"), job_id)


@app.post("/answers/{job_id}/stop", status_code=202)
async def stop(job_id: str) -> dict[str, bool]:
    """Stop the job. A closed browser does not stop it."""
    try:
        await mq.queue("answers").revoke(job_id)
    except (JobNotFound, JobStateError):
        return {"stopped": False}  # it has ended
    return {"stopped": True}
