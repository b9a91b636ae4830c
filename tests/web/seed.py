"""A store that is interesting to look at: failures of several kinds, keys, limits, schedules, workflows."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import sin
from typing import Any

from glidemq_async import GlideMQ, JobFailed, RateLimit, Schedule, workflows
from glidemq_async.storage import Storage, StorageLike


class CardDeclined(Exception):
    """A payment that the bank refuses."""


@dataclass
class Approved:
    """The signal for which orders wait."""

    by: str


def seeded_app(storage: StorageLike, prefix: str = "glide") -> GlideMQ[Any]:
    """Return an app with tasks that succeed and fail."""
    mq: GlideMQ[Any] = GlideMQ(storage, prefix=prefix)
    mq.signal(Approved)
    _declare_tasks(mq)
    _declare_workflow(mq)
    return mq


def _declare_tasks(mq: GlideMQ[Any]) -> None:

    @mq.task(queue="mail", name="send_email")
    async def send_email(to: str, subject: str, template: str = "welcome") -> str:
        if to.endswith("@slow.example"):
            raise TimeoutError("no answer from mx1.slow.example within 10 s")
        if "+" in to:
            raise ValueError(f"the relay refuses the address {to!r}")
        return "250 queued"

    @mq.task(queue="images", name="resize_image")
    async def resize_image(path: str, width: int = 800) -> dict[str, Any]:
        if path.endswith(".heic"):
            raise RuntimeError("cannot identify the format of the image")
        return {"path": path, "width": width, "bytes": 48_231}

    @mq.task(queue="billing", name="charge_card")
    async def charge_card(customer: str, amount: str, currency: str = "EUR") -> str:
        if customer.endswith("3"):
            raise CardDeclined("the bank declined the card: insufficient funds")
        return f"charged {amount} {currency}"

    @mq.task(queue="reports", name="build_report")
    async def build_report(tenant: str, month: str) -> str:
        return f"{tenant}/{month}.pdf"


def _declare_workflow(mq: GlideMQ[Any]) -> None:
    @mq.step
    async def reserve_stock(order: str) -> str:
        return f"{order}: 3 parcels"

    @mq.step
    async def charge(order: str, amount: str) -> str:
        return f"{order}: {amount} paid"

    @mq.workflow(queue="orders", name="fulfil_order")
    async def fulfil_order(order: str, amount: str) -> str:
        await reserve_stock(order)
        await charge(order, amount)
        await workflows.receive(Approved, timeout="3d")
        return order


async def fill_an_hour(mq: GlideMQ[Any], storage: Storage) -> None:
    """Run jobs in each of the last 55 minutes of a server whose clock can be moved."""
    async with mq.worker(["mail", "billing", "images"], concurrency=20):
        for minute in range(55):
            await storage.call("testControl", "glide:{mail}", ["clock_shift", (minute - 55) * 60_000])
            count = round(14 + 9 * sin(minute / 7) + minute * 7 % 5)
            is_bad = 30 < minute < 42
            calls = [
                _call(
                    to=f"c{place}@{'slow.example' if is_bad and place % 4 == 0 else 'example.com'}", subject="Receipt"
                )
                for place in range(count)
            ]
            jobs = [await mq.queue("mail").add("send_email", call) for call in calls]
            card = _call(customer=f"customer-{minute % 20}", amount="19.00")
            jobs += [await mq.queue("billing").add("charge_card", card) for _ in range(count // 3)]
            image = _call(path=f"uploads/{minute}.jpg")
            jobs += [await mq.queue("images").add("resize_image", image) for _ in range(count // 4)]
            for job in jobs:
                with suppress(JobFailed):
                    await job.result(timeout=30)
    await storage.call("testControl", "glide:{mail}", ["clock_shift", 0])


async def fill(mq: GlideMQ[Any]) -> None:
    """Run, fail, delay and pause jobs of an open app."""
    add = {name: mq.queue(name) for name in ("mail", "images", "billing", "reports", "orders")}
    await mq.queue("mail").set_dead_letter_queue("mail-dead")
    ended: list[Any] = []
    for place in range(60):
        address = f"customer{place}@slow.example" if place % 9 == 4 else f"customer{place}@example.com"
        address = f"sales+{place}@example.com" if place % 17 == 3 else address
        ended.append(await add["mail"].add("send_email", _call(to=address, subject="Your receipt", template="receipt")))
    for place in range(24):
        path = f"uploads/{place:04d}.{'heic' if place % 6 == 1 else 'jpg'}"
        ended.append(await add["images"].add("resize_image", _call(path=path, width=1600)))
    for place in range(30):
        call = _call(customer=f"customer-{place}", amount=f"{place * 7 + 12}.90")
        ended.append(await add["billing"].add("charge_card", call, key=f"tenant-{place % 4}"))
    orders = [
        await add["orders"].add("fulfil_order", _call(order=f"A-{1000 + place}", amount="59.00")) for place in range(3)
    ]
    async with mq.worker(concurrency=8):
        for job in ended:
            with suppress(JobFailed):
                await job.result(timeout=30)
        for order in orders:
            async for update in order.watch():
                if update.state == "suspended":
                    break
    await _leave_waiting(mq, add)


def _call(**arguments: object) -> dict[str, object]:
    return {"a": [], "k": arguments}


async def _leave_waiting(mq: GlideMQ[Any], add: dict[str, Any]) -> None:
    for place in range(40):
        call = _call(tenant=f"tenant-{place % 5}", month="2026-11")
        await add["reports"].add("build_report", call, key=f"tenant-{(place * place) % 5}")
    for place in range(6):
        await add["mail"].add(
            "send_email", _call(to=f"user{place}@example.com", subject="Your trial ends"), delay=3600 * (place + 1)
        )
    await add["reports"].set_global_concurrency(4)
    await add["reports"].set_key_limits("tenant-1", rate_limit=RateLimit(10, 60))
    schedules = {"nightly-report": "0 3 * * *", "hourly-digest": "0 * * * *", "weekly-cleanup": "30 4 * * 0"}
    for name, cron in schedules.items():
        await add["reports"].upsert_job_scheduler(
            name,
            Schedule(cron=cron, tz="Europe/Madrid"),
            name="build_report",
            data=_call(tenant="all", month="2026-11"),
        )
    await add["images"].pause()
