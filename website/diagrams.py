"""Diagrams: one round, the seam, and the house."""

from __future__ import annotations

from website.svg import BLUE, GRAY, GREEN, ORANGE, Picture


def draw_round() -> Picture:
    """One round: devices, masks, the sum, the median step."""
    title = "One round: devices train, mask what they send, and the server takes a robust step"
    picture = Picture(860, 346, title)
    heads = ((110, "1  train"), (330, "2  mask"), (555, "3  add up"), (765, "4  robust step"))
    for x, head in heads:
        picture.text(x, 24, head, bold=True, size=15)
    devices = (
        (BLUE, "device 1", "its update stays"),
        (BLUE, "device 2", "its update stays"),
        (ORANGE, "corrupted device", "sends a lie"),
    )
    for number, (color, *lines) in enumerate(devices):
        y = 48 + 92 * number
        picture.box(20, y, 180, 62, *lines, color=color)
        picture.arrow(200, y + 31, 240, y + 31, color=color)
        picture.box(
            242, y, 176, 62, "limit and mask", "length 1, random masks", color=color, fill=0.05
        )
        picture.arrow(418, y + 31, 476, 141 + 30 * (number - 1), color=color)
    picture.box(478, 98, 154, 92, "sum", "masks cancel:", "the total is left", color=GREEN)
    picture.arrow(632, 144, 684, 144, color=GREEN)
    picture.box(
        686, 98, 160, 92, "median step", "v + nu · push / mass", "no lie goes far", color=GREEN
    )
    picture.text(555, 232, "the server sees", soft=True, size=13)
    picture.text(555, 250, "this, and no update", soft=True, size=13)
    picture.line([(766, 200), (766, 330), (110, 330)], GRAY, 1.5)
    picture.arrow(110, 330, 110, 298, color=GRAY)
    picture.text(440, 322, "the new model, for the next round", soft=True, size=13)
    return picture


def draw_narrow_round() -> Picture:
    """The same from top to bottom, for a phone."""
    picture = Picture(360, 520, draw_round().title)
    heads = ((8, 22, "1  train"), (74, 121, "2  mask"), (8, 254, "3  add up"))
    for x, y, head in (*heads, (8, 364, "4  robust step")):
        picture.text(x, y, head, anchor="start", bold=True, size=15)
    devices = (
        (BLUE, "device 1", "update stays"),
        (BLUE, "device 2", "update stays"),
        (ORANGE, "corrupted", "sends a lie"),
    )
    for number, (color, *lines) in enumerate(devices):
        x = 8 + 118 * number
        picture.box(x, 34, 108, 56, *lines, color=color)
        picture.arrow(x + 54, 90, x + 54, 142, color=color)
        picture.box(x, 142, 108, 56, "length 1,", "random masks", color=color, fill=0.05)
        picture.arrow(x + 54, 198, 180 + 60 * (number - 1), 266, color=color)
    picture.box(84, 266, 192, 62, "sum", "masks cancel: all it sees", color=GREEN)
    picture.arrow(180, 328, 180, 376, color=GREEN)
    picture.box(
        84, 376, 192, 80, "median step", "v + nu · push / mass", "no lie goes far", color=GREEN
    )
    picture.arrow(180, 456, 180, 492, color=GRAY)
    picture.text(180, 512, "the new model, for the next round", soft=True, size=13)
    return picture


AGGREGATORS = (
    ("RFA", "Weiszfeld steps"),
    ("OneStepRFA", "one step"),
    ("Mean, clipping",),
    ("yours",),
)
SOURCES = (
    ("PlainOracle", "updates in memory"),
    ("UnmaskedOracle", "integers, no masks"),
    ("SecureOracle", "the real protocol"),
    ("on Flower", "nodes on a network"),
)
SEAM = ("SumOracle", "query: v, nu", "answer: push, mass,", "count, near")


def draw_seam() -> Picture:
    """The seam: aggregators on one side, sources of sums on the other."""
    picture = Picture(
        760, 330, "The seam: aggregators ask an oracle; plain sums, secure sums and Flower answer"
    )
    picture.text(135, 24, "aggregators", bold=True, size=15)
    picture.text(385, 24, "the seam", bold=True, size=15)
    picture.text(630, 24, "sources of sums", bold=True, size=15)
    for number, lines in enumerate(AGGREGATORS):
        y = 44 + 70 * number
        picture.box(20, y, 230, 54, *lines, color=BLUE)
        picture.arrow(250, y + 27, 300, 140 + 16 * number, color=BLUE)
    for number, lines in enumerate(SOURCES):
        y = 44 + 70 * number
        picture.box(520, y, 220, 54, *lines, color=GREEN)
        picture.arrow(520, y + 27, 470, 140 + 16 * number, color=GREEN)
    picture.box(302, 106, 166, 116, *SEAM, color=ORANGE)
    picture.text(385, 252, "no update", soft=True, size=13)
    picture.text(385, 270, "crosses this line", soft=True, size=13)
    return picture


def draw_narrow_seam() -> Picture:
    """The same from top to bottom, for a phone."""
    picture = Picture(360, 482, draw_seam().title)
    picture.text(180, 20, "aggregators", bold=True, size=15)
    for number, lines in enumerate(AGGREGATORS):
        x, y = 8 + 177 * (number % 2), 32 + 62 * (number // 2)
        picture.box(x, y, 167, 54, *lines, color=BLUE)
    picture.arrow(180, 148, 180, 180, color=BLUE)
    picture.box(97, 182, 166, 96, *SEAM, color=ORANGE)
    picture.text(330, 226, "no update", anchor="end", soft=True, size=12)
    picture.text(330, 242, "crosses it", anchor="end", soft=True, size=12)
    picture.arrow(180, 322, 180, 280, color=GREEN)
    for number, lines in enumerate(SOURCES):
        x, y = 8 + 177 * (number % 2), 324 + 62 * (number // 2)
        picture.box(x, y, 167, 54, *lines, color=GREEN)
    picture.text(180, 468, "sources of sums", bold=True, size=15)
    return picture


FLOORS: tuple[tuple[tuple[str, str, str], ...], ...] = (
    (("cli", "commands", GRAY),),
    (("lab", "experiments: tasks, attacks, runs, reports", BLUE),),
    (("flower", "strategies and the mod for Flower apps", BLUE),),
    (("planning", "how many devices", BLUE), ("receipts", "signed records", BLUE)),
    (("secagg", "the secure sum", GREEN), ("aggregators", "RFA and others", ORANGE)),
    (("privacy", "epsilon, charges", GREEN), ("median, numerics", "fast and exact", ORANGE)),
    (("oracle", "the seam: sums, and nothing else", GRAY),),
)


def draw_house() -> Picture:
    """The house: which package may import which."""
    picture = Picture(760, 420, "The packages of rfa: each may import those below it")
    for floor, rooms in enumerate(FLOORS):
        width = (720 - 16 * (len(rooms) - 1)) / len(rooms)
        for number, (name, about, color) in enumerate(rooms):
            x, y = 20 + number * (width + 16), 12 + 58 * floor
            picture.box(x, y, width, 46, color=color)
            picture.text(x + 14, y + 28, name, anchor="start", bold=True)
            picture.text(x + width - 12, y + 28, about, anchor="end", size=12, soft=True)
    return picture


def draw_narrow_house() -> Picture:
    """The same with the words below the names, for a phone."""
    picture = Picture(360, 458, draw_house().title)
    for floor, rooms in enumerate(FLOORS):
        width = (344 - 10 * (len(rooms) - 1)) / len(rooms)
        for number, (name, about, color) in enumerate(rooms):
            picture.box(
                8 + number * (width + 10), 8 + 64 * floor, width, 56, name, about, color=color
            )
    return picture
