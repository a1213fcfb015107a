#!/usr/bin/env python3
"""Makes a dataset for two devices out of text that people wrote: the NAME lines of manual pages.

Prompt "What does X do?", answer the line, subject the package that ships the page. Packages are dealt
by a hash of their names: 4 of 10 to each device, the rest is held out. A package counts with at most
16 pages, one of a page's line; answers are at most 60 characters.

usage: manual_pages.py OUT [FOLDER_OF_PACKAGES]

Without a folder the pages of the installed packages are read (dpkg's lists say whose they are). With
one, FOLDER/PACKAGE/ holds an unpacked package each. Writes OUT/device-1.jsonl, device-2.jsonl,
heldout.jsonl, gate.jsonl.
"""
import glob
import gzip
import hashlib
import json
import os
import re
import sys

PAGE = re.compile(r"/usr/share/man/man[1578]/([^/]+)\.[1578][a-z]*\.gz$")
PAGES_OF_PACKAGE, LONGEST_ANSWER, HELD_OUT, GATE = 16, 60, 48, 6
SYSTEM = "You are a manual."  # shorter than the template's own, which would be half of an example


def installed():
    """{package: its pages}"""
    pages = {}
    for path in glob.glob("/var/lib/dpkg/info/*.list"):
        package = os.path.basename(path)[: -len(".list")].split(":")[0]
        with open(path, encoding="utf-8", errors="replace") as f:
            found = [line.strip() for line in f if PAGE.match(line.strip())]
        pages.setdefault(package, []).extend(p for p in found if os.path.exists(p))
    return pages


def unpacked(folder):
    pages = {}
    for package in os.listdir(folder):
        root = os.path.join(folder, package)
        found = glob.glob(root + "/usr/share/man/man[1578]/*.gz")
        pages[package] = [p for p in found if PAGE.search(p)]
    return pages


def plain(roff):
    """A line of roff without its escapes."""
    line = re.sub(r"\\f(\[[^]]*\]|\(..|.)", "", roff)
    line = re.sub(r"\\s[-+]?\d+|\\[&/,|^:%]|\\\(oq|\\\(cq", "", line)
    line = line.replace(r"\(em", "-").replace(r"\(en", "-").replace(r"\-", "-")
    line = re.sub(r"\\\(aq|\\\[aq\]|\\\*\(Aq", "'", line)
    return " ".join(line.replace(r"\ ", " ").replace(r"\e", "\\").split())


def name_line(path):
    """(name, what it is) of a page, or None where the NAME section is of another form."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", errors="strict") as f:
            text = f.read(65536)
    except (OSError, UnicodeDecodeError, EOFError):
        return None
    section = re.search(r'^\.SH +"?NAME"?\s*\n(.*?)^\.S[Hh]', text, re.M | re.S)
    if not section:
        return None
    lines = [l for l in section.group(1).splitlines() if l and not re.match(r"\.?\\\"|'", l)]
    lines = [re.sub(r"^\.(B|I|BR|RB|BI|R) +", "", l) for l in lines if not re.match(r"\.(ad|nh|sp|PP|P|LP|hy|na|nf|fi)\b", l)]
    if any(l.startswith(".") for l in lines):
        return None
    parts = plain(" ".join(lines)).split(" - ", 1)
    if len(parts) != 2 or "\\" in parts[1] or not parts[1].isascii():
        return None
    return parts[0].split(",")[0].strip(), parts[1].strip(' "')


def records(package, paths):
    seen, out = set(), []
    for path in sorted(paths):
        line = name_line(path)
        if not line or not re.fullmatch(r"[\w.+@-]+", line[0]):
            continue
        name, answer = line
        if not 8 <= len(answer) <= LONGEST_ANSWER or answer in seen:
            continue
        seen.add(answer)
        say = lambda role, text: {"role": role, "content": [{"type": "text", "text": text}]}
        out.append({"id": f"{package}/{os.path.basename(path)}", "subject": package,
                    "messages": [say("system", SYSTEM), say("user", f"What does {name} do?"),
                                 say("assistant", answer)]})
    return out[:PAGES_OF_PACKAGE]


def lot(package):
    return hashlib.sha256(package.encode()).digest()[0] % 10


def write(path, rows):
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    subjects = len({row["subject"] for row in rows})
    print(f"{os.path.basename(path)}: {len(rows)} lines of {subjects} packages")


def main():
    out = sys.argv[1]
    pages = unpacked(sys.argv[2]) if len(sys.argv) > 2 else installed()
    parts = {"device-1": [], "device-2": [], "heldout": []}
    for package in sorted(pages):
        part = "device-1" if lot(package) < 4 else "device-2" if lot(package) < 8 else "heldout"
        parts[part] += records(package, pages[package])
    # Lines of every held-out package, not only of the first ones in the alphabet.
    held = sorted(parts.pop("heldout"), key=lambda r: hashlib.sha256(r["id"].encode()).digest())
    os.makedirs(out, exist_ok=True)
    for name, rows in parts.items():
        write(os.path.join(out, name + ".jsonl"), rows)
    write(os.path.join(out, "gate.jsonl"), held[:GATE])
    write(os.path.join(out, "heldout.jsonl"), held[GATE : GATE + HELD_OUT])
    if min(len({r["subject"] for r in rows}) for rows in parts.values()) < 20 or len(held) < HELD_OUT // 2:
        sys.exit("too few manual pages: give a folder of unpacked packages")


if __name__ == "__main__":
    main()
