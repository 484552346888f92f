"""Pods whose answers through a proxy would cost much: endless tags and compressed zeros."""

from __future__ import annotations

import gzip
import os
from collections.abc import AsyncGenerator

import pytest
from multidict import CIMultiDict

from torchyard.apiserver.proxy import html_rewriter, reverse_proxy
from torchyard.apiserver.proxy.html_rewriter import HtmlRewriter
from torchyard.apiserver.proxy.location import ProxyTarget
from torchyard.apiserver.proxy.reverse_proxy import ProxyRequest

MIB = 1 << 20


def rewrite(*pieces: bytes) -> bytes:
    rewriter = HtmlRewriter(lambda url: f"/p{url}")
    return b"".join([*map(rewriter.feed, pieces), rewriter.finish()])


def split(document: bytes) -> list[bytes]:
    return [document[at : at + 1] for at in range(len(document))]


@pytest.mark.parametrize(
    ("document", "output"),
    [
        (b"a<b>c", b"a<b>c"),
        (b"<A HREF='/x'>y</A >z", b'<a href="/p/x">y</A >z'),
        (b"<!-- <a href=/x> --><a href=/x>", b'<!-- <a href=/x> --><a href="/p/x">'),
        (b"<!doctype html><?x?><a href=/x>", b'<!doctype html><?x?><a href="/p/x">'),
        (b"<script>'<a href=/x>'</script ><a href=/x>", b"<script>'<a href=/x>'</script ><a href=\"/p/x\">"),
        (b"1 < 2 <<a href=/x>", b'1 < 2 <<a href="/p/x">'),
        (b"<a href='/x>", b"<a href='/x>"),
    ],
)
def test_pieces_are_rewritten_as_the_whole(document: bytes, output: bytes) -> None:
    assert rewrite(document) == rewrite(*split(document)) == output


@pytest.mark.parametrize("start", [b"<", b"<a ", b"<a b='", b'<a b="', b"<!--", b"</", b"<!"])
def test_the_work_is_linear_in_a_tag_without_an_end(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    end_of_tag = html_rewriter._end_of_tag

    def count(text: str, at: int, quote: str) -> tuple[int, str]:
        nonlocal read
        read += len(text) - at
        return end_of_tag(text, at, quote)

    monkeypatch.setattr(html_rewriter, "_end_of_tag", count)
    pieces = [start, *[b"a" * 4096] * 512]
    assert rewrite(*pieces) == b"".join(pieces)
    assert read <= 5 * 2 * MIB


def test_a_long_tag_is_copied_and_those_behind_it_rewritten() -> None:
    long = b'<script data-x="' + b">a" * 20_000
    document = (long[:20_000], long[20_000:], b'"><a href=/x></script><a href=/x>')
    assert rewrite(*document) == b"".join(document)[:-11] + b'<a href="/p/x">'


async def chunks(*data: bytes) -> AsyncGenerator[bytes, None]:
    for each in data:
        yield each


async def test_compressed_zeros_are_inflated_piece_by_piece() -> None:
    size = 4 * MIB
    compressed = gzip.compress(bytes(size))
    sizes = [len(piece) async for piece in reverse_proxy._decompress(chunks(compressed[:100], compressed[100:]))]
    assert sum(sizes) == size
    assert max(sizes) <= 1 << 16


async def test_a_compressed_page_is_compressed_as_it_is_rewritten() -> None:
    request = ProxyRequest(ProxyTarget("http", "10.0.0.1", "80"), "GET", "/", CIMultiDict(), b"", "/p", "/p/", "")
    page = b"<p>" + os.urandom(MIB // 4).hex().encode()
    compressed = gzip.compress(page)
    headers = CIMultiDict({"Content-Encoding": "gzip"})
    parts = [part async for part in reverse_proxy._rewrite_html(request, headers, chunks(compressed))]
    assert len(parts) > 1
    assert gzip.decompress(b"".join(parts)) == page
