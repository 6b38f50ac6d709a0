"""Forwards a port of the sandbox's loopback to a Unix socket. Prints the port, and stays in the background."""

import asyncio
import os
import socket
import sys

listener = socket.create_server(("127.0.0.1", 0), backlog=64)
print(listener.getsockname()[1], flush=True)
if os.fork() > 0:
    os._exit(0)
os.setsid()
null = os.open(os.devnull, os.O_RDWR)
for descriptor in (0, 1, 2):
    os.dup2(null, descriptor)


async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def serve(reader, writer):
    try:
        far_reader, far_writer = await asyncio.open_unix_connection(sys.argv[1])
    except OSError:
        writer.close()
        return
    back = asyncio.create_task(copy(far_reader, writer))
    forth = asyncio.create_task(copy(reader, far_writer))
    try:
        await back
    except OSError:
        pass  # the client went away
    finally:
        forth.cancel()
        await asyncio.gather(forth, return_exceptions=True)
        far_writer.close()
        writer.close()


async def main():
    async with await asyncio.start_server(serve, sock=listener):
        await asyncio.Event().wait()


asyncio.run(main())
