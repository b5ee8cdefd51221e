"""How much more two rails carry than one: ./dev evidence rails. Readout and builder units are striped over the rails by source."""

from evidence.common import good, megabytes, percent, table
from evidence.shaping import RECOMMENDED, Row, links, measure, remarks

__all__ = ["headline", "measure", "plots", "rows", "tables"]

HEAD = ["nodes", "shaping", "links", "one rail, MB/s", "two rails, MB/s", "times one rail", "idle CPU", "remarks"]


def rows():
    return (Row("rails", "2x2", policy, rails=2) for policy in ("none", RECOMMENDED))


def headline(measured):
    return f"{measured['results']['evb']['ratio_to_one_rail']:.2f}"


def line(one):
    evb, rail = one["results"]["evb"], one["results"]["one rail"]
    return [one["nodes"], one["policy"], links(one), megabytes(rail["bytes_per_s"]), megabytes(evb["bytes_per_s"]),
            f"{evb['ratio_to_one_rail']:.2f}", percent(evb.get("idle_cpu")), remarks(one)]


def tables(found):
    return table("Two rails beside one", HEAD, [line(one) for one in good(found, rows())])


def plots(found, folder):
    return []
