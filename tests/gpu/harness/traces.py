"""Archives of the traces that a run left, so that a machine with a network can read them with other programs."""

import tarfile
import zlib

ARCHIVES_MAX = 5
ARCHIVE_BYTES = 15 << 20
# Beside its compressed data, a trace has a header in the archive, and the last one is padded.
OVERHEAD_BYTES = 2048
LEVEL = 6


def compressed_bytes(path):
    """How large a trace is in an archive, at most; it is read in pieces, since traces can be larger than memory."""
    deflate, size = zlib.compressobj(LEVEL), OVERHEAD_BYTES
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            size += len(deflate.compress(piece))
            if size > ARCHIVE_BYTES:
                break
    return size + len(deflate.flush())


def pack(scratch, out):
    """Packs every trace under `scratch` into out/traces-N.tar.gz, small ones first so that most fit.

    Returns the archives with how many traces each has, and the traces that did not fit, with their sizes."""
    for old in out.glob("traces-*.tar.gz"):
        old.unlink()
    traces = sorted((path for path in scratch.rglob("*.gputrace") if path.is_file()), key=lambda path: (path.stat().st_size, path))
    archives, left_out = [], []
    for path in traces:
        size = compressed_bytes(path)
        fits = next((archive for archive in archives if archive["bytes"] + size <= ARCHIVE_BYTES), None)
        if fits is None and len(archives) < ARCHIVES_MAX and size <= ARCHIVE_BYTES:
            fits = {"bytes": OVERHEAD_BYTES, "traces": []}
            archives.append(fits)
        if fits is None:
            left_out.append((path.relative_to(scratch), path.stat().st_size))
            continue
        fits["bytes"] += size
        fits["traces"].append(path)
    packed = []
    for number, archive in enumerate(archives, 1):
        name = out / f"traces-{number}.tar.gz"
        with tarfile.open(name, "w:gz", compresslevel=LEVEL) as tar:
            for path in archive["traces"]:
                tar.add(path, path.relative_to(scratch))
        packed.append((name, len(archive["traces"])))
    return packed, left_out


def keep(bench):
    """Rows of what was packed, and of each trace that was left out."""
    bench.section = "traces"
    packed, left_out = pack(bench.scratch, bench.out)
    for name, count in packed:
        size = name.stat().st_size
        bench.row(name.name, "INFO" if size <= ARCHIVE_BYTES else "FAIL", f"{count} traces in {size / 2**20:.1f} MiB")
    for path, size in left_out:
        bench.row(str(path), "SKIP", f"left out: {size / 2**20:.1f} MiB do not fit in {ARCHIVES_MAX} archives of {ARCHIVE_BYTES >> 20} MiB")
    if not packed and not left_out:
        bench.row("traces", "SKIP", "no section left a trace")
