"""What an app does with a bundle: buffers, recordings, the step record, and tokens one by one.

It knows the manifest, and of a GPU four verbs: `buffer`, `pipeline`, `recording` and `run`.
"""

import struct

FORMS = {"uint32": "I", "float32": "f"}


class Player:
    """A bundle on a GPU."""

    def __init__(self, folder, manifest, gpu):
        assert (manifest["format"], manifest["version"]) == ("edgequant bundle", 1)
        self._manifest, self._gpu = manifest, gpu
        self._buffers = [gpu.buffer(item["bytes"]) for item in manifest["buffers"]]
        for (_, content), item in zip(self._buffers, manifest["buffers"], strict=True):
            if "file" in item:
                with (folder / item["file"]).open("rb") as file:
                    file.seek(item["offset"])
                    assert file.readinto(content[: item["bytes"]]) == item["bytes"]
        self._pipelines = [
            gpu.pipeline((folder / item["file"]).read_bytes(), item)
            for item in manifest["pipelines"]
        ]
        self._dispatches = [self._dispatch(item) for item in manifest["dispatches"]]
        self._recordings = {}

    def text(self, ids, limit):
        """Feed a prompt, and yield the tokens drawn after it."""
        manifest, drawn = self._manifest, 0
        context, past = manifest["model"]["context"], 0
        for length in self._lengths(len(ids)):
            step = ids[past : past + length]
            purpose = "draw" if past + length == len(ids) else "fill"
            self._write(past, step)
            self._play(purpose, length, past + length)
            past += length
        self._write(past, (), drawn=1)
        while True:
            token = self._drawn(drawn)
            drawn += 1
            if token in manifest["tokenizer"]["stops"]:
                return
            yield token
            if drawn == limit or past == context:
                return
            past += 1
            self._play("draw", 1, past)  # nothing is written: the GPU has all it needs

    def _lengths(self, count):
        """Cut a prompt as edgequant does: the README's rule."""
        sizes = self._manifest["batches"]
        while count:
            piece = min(count, sizes[-1])
            count -= piece
            while piece:
                most = next(size for size in sizes if size >= piece)
                below = [size for size in sizes if 8 < size < most]
                most = below[-1] if below and 2 * piece <= most else most
                yield min(piece, most)
                piece -= min(piece, most)

    def _write(self, past, ids, drawn=0):
        """Write the step record, and the ids of a step if there are any."""
        step = self._manifest["step"]
        values = {"past": past, "tokens": len(ids) or 1, "rows": 1, "drawn": drawn}
        _, content = self._buffers[step["buffer"]]
        for field in step["fields"]:
            form = f"<{field['count']}{FORMS[field['type']]}"
            found = [values.get(field["name"], 0)] * field["count"]
            struct.pack_into(form, content, field["offset"], *found)
        _, tokens = self._buffers[self._manifest["tokens"]["buffer"]]
        struct.pack_into(f"<{len(ids)}I", tokens, 0, *ids)

    def _drawn(self, number):
        ring = self._manifest["ring"]
        _, content = self._buffers[ring["buffer"]]
        (token,) = struct.unpack_from("<I", content, 4 * (number % ring["length"]))
        assert token != ring["not_finite"]
        return token

    def _play(self, purpose, tokens, seen):
        """Run the smallest recording that holds so many tokens, and tokens seen."""
        fitting = [
            (item["tokens"], item["context"], number)
            for number, item in enumerate(self._manifest["recordings"])
            if item["purpose"] == purpose and item["tokens"] >= tokens and item["context"] >= seen
        ]
        _, _, number = min(fitting)
        if number not in self._recordings:
            item = self._manifest["recordings"][number]
            dispatches = [self._dispatches[one] for one in item["dispatches"]]
            self._recordings[number] = self._gpu.recording(dispatches, set(item["barriers"]))
        self._gpu.run(self._recordings[number])

    def _dispatch(self, item):
        addresses = [self._buffers[buffer][0] + offset for buffer, offset in item["arguments"]]
        arguments = struct.pack(f"<{len(addresses)}Q", *addresses) + bytes.fromhex(item["scalars"])
        return self._pipelines[item["pipeline"]], item["workgroups"], arguments
