"""A service that answers logits with calibrated probabilities.

Run it with

    CALIBRATOR=cal.json uvicorn serve:service --factory
"""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel

import calibrant


class Scores(BaseModel):
    """The body of a request: one row of logits for each sample."""

    logits: list[list[float]]


def service(path: str | None = None) -> FastAPI:
    """The service; a calibrator that cannot be read stops it at the start."""
    calibrator = calibrant.load(path or os.environ["CALIBRATOR"])
    app = FastAPI(title="Calibrated probabilities")

    @app.exception_handler(calibrant.CalibrantError)
    def refuse(request: Request, error: calibrant.CalibrantError) -> JSONResponse:
        """Wrong input is the client's: one line, with what to do. Anything else is status 500."""
        return JSONResponse({"detail": str(error)}, status_code=422)

    @app.exception_handler(RequestValidationError)
    def unreadable(request: Request, error: RequestValidationError) -> JSONResponse:
        """FastAPI's own answer repeats the input, which fails if that has NaN in it."""
        line = 'expected {"logits": [[...], ...]} with one list of numbers for each sample'
        return JSONResponse({"detail": line}, status_code=422)

    @app.post("/probabilities")
    def probabilities(scores: Scores) -> dict[str, Any]:
        """Calibrated probabilities of each row."""
        return {"probabilities": calibrator.predict_proba(logits=scores.logits).tolist()}

    @app.get("/calibrator")
    def about() -> dict[str, Any]:
        """What is running: for logs, and for checks after a roll-out."""
        origin = calibrator.origin_
        return {
            "method": calibrator.NAME,
            "classes": calibrator.classes_,
            "created": origin.created,
            "metadata": origin.metadata,
        }

    return app
