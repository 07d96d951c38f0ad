"""qkv doctor: what is wrong with an installation, and what to do about it."""

import json
import sys
from typing import Annotated

import typer

MARKS = {"ok": "ok  ", "note": "note", "fail": "FAIL"}


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects: check, state, found, advice.")] = False,
) -> None:
    """Check this installation, one line for each check; exit with 1 if something will fail."""
    from qkv.cli.doctor.checks import check_installation

    findings = []
    for finding in check_installation():
        findings.append(finding)
        if not as_json:  # the last checks take seconds
            advice = f"; {finding.advice}" if finding.advice else ""
            print(f"{MARKS[finding.state]}  {finding.check}: {finding.found}{advice}", flush=True)
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))
    if any(finding.state == "fail" for finding in findings):
        sys.exit(1)
