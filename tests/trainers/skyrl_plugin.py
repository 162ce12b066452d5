"""A pytest plugin: SkyRL 0.3 can't be imported on Python 3.11, where pydantic wants this TypedDict."""

import typing

import typing_extensions

typing.TypedDict = typing_extensions.TypedDict
