"""TLS for tests: a certificate, and a TLS port in front of a server without TLS."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.servers import Server


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Make a key and a self-signed certificate for 127.0.0.1, and return their files."""
    key, certificate = directory / "key.pem", directory / "cert.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    return key, certificate


@asynccontextmanager
async def tls_proxy(server: Server, certificate: tuple[Path, Path]) -> AsyncGenerator[int]:
    """Serve TLS on a loopback port and forward to a server; yield the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate[1], certificate[0])
    forwards: list[asyncio.Task[None]] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        forwards.append(asyncio.ensure_future(_forward(server.port, reader, writer)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context) as listening:
        try:
            yield listening.sockets[0].getsockname()[1]
        finally:
            for forward in forwards:
                forward.cancel()
            await asyncio.gather(*forwards, return_exceptions=True)
            await asyncio.sleep(0)


async def _forward(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
    pumps = [
        asyncio.ensure_future(_pump(reader, up_writer)),
        asyncio.ensure_future(_pump(up_reader, writer)),
    ]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        up_writer.transport.abort()
        writer.transport.abort()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
