"""Shaping of fragments with log-normal sizes (Moser 2007, figure 13): ./dev evidence log-normal.

A batch is committed as a whole, and here it takes a good part of a second to arrive: so each row takes longer than those of `shaping`.
"""

from evidence.common import good, table
from evidence.shaping import POLICIES, RECOMMENDED, THROUGHPUT, Row, draw_buffers, draw_nodes, headline, measure, throughput_line

__all__ = ["headline", "measure", "plots", "rows", "tables"]

SIZES = {"size": "2KiB", "sigma": "2KiB", "duration": "6s"}


def rows():
    for nodes in ("8x8", "4x7", "7x4"):
        for buffer in ("32KiB", "128KiB", "512KiB"):
            yield from (Row("buffers", nodes, policy, buffer, **SIZES) for policy in POLICIES)
    for units in range(1, 8):
        yield from (Row("nodes", f"{units}x{units}", policy, **SIZES) for policy in ("none", RECOMMENDED))


def of_table(found, name):
    return good(found, [row for row in rows() if row.table == name])


def tables(found):
    return [line for name, title in (("buffers", "Log-normal sizes: buffers of the switch"), ("nodes", "Log-normal sizes: N x N"))
            for line in table(title, THROUGHPUT, [throughput_line(one) for one in of_table(found, name)])]


def plots(found, folder):
    draw_buffers(folder / "log-normal-buffers.svg", of_table(found, "buffers"))
    draw_nodes(folder / "log-normal-nodes.svg", "2 KiB, log-normal", of_table(found, "nodes"))
    return ["log-normal-buffers.svg", "log-normal-nodes.svg"]
