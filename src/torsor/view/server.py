"""Web servers of viewers: started and stopped without a word, on the local machine only unless told otherwise."""

from __future__ import annotations

import atexit
import io
import socket
from contextlib import closing, redirect_stdout
from typing import Any

_PORTS = range(8080, 8100)  # tried in this order, if none is given


def viser_package() -> Any:
    """The module `viser`."""
    try:
        import viser
    except ImportError as error:
        raise ImportError("torsor.view needs the package 'viser': pip install 'torsor[view]'") from error
    return viser


def start(host: str, port: int | None, label: str | None = None) -> Any:
    """A viser server, which prints nothing; with port 0, at any free port."""
    viser = viser_package()
    chosen = 0 if port == 0 else _free_port(host, port)
    with redirect_stdout(io.StringIO()):
        server = viser.ViserServer(host=host, port=chosen, label=label, verbose=False)
    atexit.unregister(server.stop)  # which prints; close() comes first
    return server


def stop(server: Any) -> None:
    """Stops a server."""
    with redirect_stdout(io.StringIO()):
        server.stop()


def _free_port(host: str, port: int | None) -> int:
    """The port that was asked for, or the first free one of the usual ports."""
    if port is not None and not (isinstance(port, int) and 0 < port < 65536):
        raise ValueError(f"port is {port!r}, expected a number from 1 to 65535, or None for a free one")
    tried = _PORTS if port is None else (port,)
    reason: OSError | None = None
    for number in tried:
        try:
            found = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            raise ValueError(f"host is {host!r}, which is no address of this machine: {error}") from error
        family, kind, protocol, _, address = found[0]
        with closing(socket.socket(family, kind, protocol)) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(address)
            except OSError as error:
                reason = error
                continue
            return number
    shown = f"port {port}" if port is not None else f"ports {_PORTS.start} to {_PORTS.stop - 1}"
    raise OSError(f"cannot listen at {shown} of {host!r}: {reason}; pass another port=") from reason
