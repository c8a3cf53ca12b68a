"""Compile a layer list for one input size into the steps of the native plan.

Layers are walked once. What only moves pixels is not computed but remembered and folded into the
addresses of its neighbours: a pixel unshuffle or an upsampling into the input of the next matrix
product, a pixel shuffle into the output of the last one; a ReLU and a skip connection into the
epilogue. The first product reads the picture itself and the last one writes it, row by row.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from .._kernels._plan import BLOCK, LINE, MAX_SEGMENTS, PICTURE_VALUES, POOL_ROWS, WINOGRAD_UNIT
from ..errors import ConfigError
from ..models import spec
from ..models.spec import Layers
from . import geometry
from .packing import Packer, pad16
from .products import Products
from .program import Activation, Pool, Program, Step, chain, place

#: Pixels that a band of a Zenith block has at least, so that a product is worth its panels.
LEAST_BAND_PIXELS = 128
#: Tiles of a strip of Winograd's are whole units, as many as have their transformed values and sums within so
#: many bytes, a part of L2.
WINOGRAD_BYTES = 512 * 1024
GROUP_NORM_EPSILON = 1e-5
#: Channels of an unshuffled picture up to which bf16 reads it as sums of two values: twice the products, on
#: few.
SPLIT_DEPTH = 32


def compile_layers(
    layers: Layers, in_channels: int, height: int, width: int, packer: Packer, first: int = 0
) -> Program:
    """Steps for an input of height x width.

    Parameters
    ----------
    layers, in_channels : the network, or a run of its layers.
    height, width : size of the padded input; every resolution must be whole.
    packer : holds the network's tensors.
    first : index of ``layers[0]`` in the network, for the names of tensors.
    """
    return _Lowering(layers, in_channels, height, width, packer, first).program()


Mixing: TypeAlias = spec.Linear | spec.Conv | spec.SpectralLinear


class _Epilogue(NamedTuple):
    """What follows a layer and can be done with it.

    Attributes
    ----------
    next : the first layer after all of these.
    relu, shuffle : whether there is a ReLU, and by how much pixels are shuffled.
    skip : the name of the activation to add.
    """

    next: int
    relu: bool = False
    shuffle: int = 1
    skip: str | None = None


class _Lowering:
    def __init__(
        self, layers: Layers, in_channels: int, height: int, width: int, packer: Packer, first: int
    ) -> None:
        self.layers = layers
        self.first = first
        self.products = Products(packer, first)
        self.packer = packer
        self.value_bytes = packer.value_bytes
        self.steps: list[Step] = []
        self.kept: dict[str, Activation] = {}
        # Where we are: an activation or (None) the picture, its size and channels, and what is
        # remembered but not done yet.
        self.x: Activation | None = None
        self.height, self.width, self.channels = height, width, in_channels
        self.clamp = 0.0
        self.unshuffle = 1
        self.upsample = False
        self.stored = False

    def program(self) -> Program:
        i = 0
        while i < len(self.layers):
            i = self.lower(i)
        if not self.stored:
            if self.x is None and not self.pending():
                # Rounded once, as where a layer follows: a cut between stages changes no bit.
                self.load(len(self.layers))
            self.identity(len(self.layers) + 1, epilogue=True)
        chain(self.steps)
        total = place(self.steps, self.value_bytes)
        return Program(self.steps, total, max(step.scratch for step in self.steps), self.packer.bf16)

    # --- where we are -----------------------------------------------------------------------

    def label(self, index: int, name: str) -> str:
        return f"{self.first + index} {name} {self.height}x{self.width}"

    def activation(self, height: int, width: int, channels: int, dense: bool = False) -> Activation:
        return Activation(height, width, channels, channels if dense else pad16(channels))

    def scratch(self, floats: int = 0, values: int = 0) -> int:
        """Bytes of a piece of scratch; pieces begin on cache lines (`carve` in plan.c)."""
        return -(-(4 * floats + self.value_bytes * values) // LINE) * LINE

    def pending(self) -> bool:
        return self.unshuffle > 1 or self.upsample

    def current(self, index: int) -> Activation:
        """The activation here, with nothing left to do to it."""
        if self.pending():
            self.identity(index)
        return self.x if self.x is not None else self.load(index)

    def load(self, index: int, dense: bool = False) -> Activation:
        """The picture as an activation; ``dense`` where only a product reads it.

        Unshuffled by r, its channels are by pixel: the c'th of pixel (y, x) of r x r is (y r + x) C + c, as
        the kernels store them, and not as torch does.
        """
        r, self.unshuffle = self.unshuffle, 1
        self.check_picture(index, self.channels * r)
        self.height, self.width, self.channels = self.height // r, self.width // r, self.channels * r * r
        self.x = self.activation(self.height, self.width, self.channels, dense)
        self.x.picture = True
        size = self.height, self.width
        step = Step("load", self.label(index, "load"), *size, out=self.x, load=r, clamp=self.clamp)
        if dense:
            self.x.pitch, step.split = self.row_of_picture(self.channels)
            self.x.split = step.split
        if self.packer.bf16:
            step.scratch = self.scratch(floats=self.width * self.x.pitch)
        self.steps.append(step)
        self.clamp = 0.0
        return self.x

    def check_picture(self, index: int, values: int) -> None:
        if values > PICTURE_VALUES:
            raise ConfigError(
                f"layer {self.first + index}: {values} values a pixel, more than {PICTURE_VALUES}"
            )

    def row_of_picture(self, depth: int) -> tuple[int, bool]:
        """Values that a product reads a pixel of the picture, and whether they are sums of two bf16.

        One bf16 would round 8-bit pictures. A denoiser would take the difference for noise, and
        leave it in, since it changes the picture as it was. What a stage reads from the stage before
        is rounded as it would be without the cut.
        """
        split = self.packer.bf16 and self.first == 0 and depth <= SPLIT_DEPTH
        return (2 * depth if split else self.packer.whole(depth)), split

    # --- layers -----------------------------------------------------------------------------

    def lower(self, i: int) -> int:
        """Compile layer i and what is fused with it; returns the next one."""
        layer = self.layers[i]
        match layer:
            case spec.PixelUnshuffle():
                if self.pending():
                    self.identity(i)
                self.unshuffle = layer.r
            case spec.Upsample():
                if self.pending():
                    self.identity(i)
                self.upsample = True
            case spec.PixelShuffle():
                if self.upsample:
                    self.identity(i)
                return self.identity(i, epilogue=True)
            case spec.Linear() | spec.Conv() | spec.SpectralLinear():
                return self.matrix(i, layer)
            case spec.Clamp():
                # At a cut it is a step as in the whole: a load that clamps does not round, and what
                # follows a global block must be compiled in the same way.
                if self.x is None and self.first == 0 and not self.upsample and not self.clamp:
                    self.clamp = layer.limit
                else:
                    self.elementwise(i, "clamp", clamp=layer.limit)
            case spec.Relu():
                self.elementwise(i, "relu")
            case spec.Keep():
                self.kept[layer.name] = self.current(i)
            case spec.Add():
                self.elementwise(i, "add", self.kept[layer.name])
            case spec.ResBlock():
                self.res_block(i, layer)
            case spec.ZenithBlock():
                return self.zenith_block(i, layer)
            case _:
                raise ConfigError(f"the native engine does not know {layer}")
        return i + 1

    def identity(self, i: int, epilogue: bool = False) -> int:
        """A product before layer i that only does what is remembered, or what follows too."""
        n = self.channels * self.unshuffle**2
        return self.matrix(i - 1, spec.Linear(n, n, bias=False), identity=True, epilogue=epilogue)

    def elementwise(self, i: int, kind: str, other: Activation | None = None, clamp: float = 0.0) -> None:
        x = self.current(i)
        out = self.activation(x.height, x.width, x.channels)
        self.steps.append(
            Step(
                kind, self.label(i, kind), x.height, x.width, into=x, out=out, residual=other, clamp=clamp,
                length=x.width * x.pitch,
            )
        )  # fmt: skip
        self.x = out

    def epilogue(self, i: int) -> _Epilogue:
        relu, shuffle, skip = False, 1, None
        i += 1
        while i < len(self.layers):
            layer = self.layers[i]
            if isinstance(layer, spec.Relu) and not relu and skip is None:
                relu = True
            elif isinstance(layer, spec.PixelShuffle) and shuffle == 1 and skip is None:
                shuffle = layer.r
            elif isinstance(layer, spec.Add) and skip is None:
                skip = layer.name
            else:
                break
            i += 1
        return _Epilogue(i, relu, shuffle, skip)

    def matrix(self, i: int, layer: Mixing, identity: bool = False, epilogue: bool = True) -> int:
        """A layer that mixes channels, with all its fused neighbours."""
        self.move_before(i, layer, identity)
        after = self.epilogue(i) if epilogue else _Epilogue(i + 1)
        if layer.cout % after.shuffle**2:
            raise ConfigError(
                f"layer {self.first + i}: {layer.cout} channels cannot be shuffled by {after.shuffle}"
            )
        # A skip after a ReLU or a shuffle is added by the steps of a direct product only.
        plain = after.shuffle == 1 and not (after.relu and after.skip)
        winograd = self.winograd(layer) and not self.upsample and plain
        by_pixel = 1
        if isinstance(layer, spec.Conv) and self.x is None:
            by_pixel = self.unshuffle
            self.load(i, dense=not winograd)
        stride = layer.stride if isinstance(layer, spec.Conv) else self.unshuffle
        spectral = isinstance(layer, spec.SpectralLinear)
        name = "identity" if identity else type(layer).__name__
        step = Step(
            "spectral" if spectral else "gemm", self.label(i, name), self.height // stride,
            self.width // stride, into=self.x, relu=after.relu, into_stride=stride,
        )  # fmt: skip
        larger = after.shuffle * (2 if self.upsample else 1)
        cout = layer.cout // after.shuffle**2
        ends = after.next >= len(self.layers) and after.skip is None and not winograd
        self.read_by(step, i, layer)
        self.write_by(step, i, cout, larger, after.skip, ends)
        # Whether a stage ends here, also where the network is compiled as a whole: sums are to be the same.
        at_end = ends or (after.next < len(self.layers) and spec.is_global(self.layers[after.next]))
        if identity:
            self.multiply_nothing(step, after.shuffle)
        else:
            self.multiply_by(step, i, layer, by_pixel, after.shuffle, at_end)
        if step.add is not None and plain and not (after.relu or spectral or self.upsample):
            # Nothing lies between the product and the skip connection, so the product adds it.
            step.add, step.residual = None, step.add
        if winograd:
            self.to_winograd(step)
        self.steps.append(step)
        self.x, self.stored = step.out, ends
        self.height, self.width, self.channels = step.rows * larger, step.width * larger, cout
        self.unshuffle, self.upsample, self.clamp = 1, False, 0.0
        return after.next

    def move_before(self, i: int, layer: Mixing, identity: bool) -> None:
        """Do what is remembered where layer i cannot read its input so."""
        conv = isinstance(layer, spec.Conv)
        # The picture itself can be read as a convolution wants it. What a stage before has made cannot: the
        # sums of its channels would be in another order than without the cut.
        moved = conv and (self.x is not None or self.first > 0)
        if self.unshuffle > 1 and (moved or (self.x is not None and self.unshuffle**2 > MAX_SEGMENTS)):
            if not conv:
                raise ConfigError(f"PixelUnshuffle({self.unshuffle}) is only supported up to 8 here")
            self.identity(i)
        if self.upsample and not identity and not (isinstance(layer, spec.Conv) and layer.stride == 1):
            self.identity(i)  # the four phases of an enlarged input are those of stride 1

    def read_by(self, step: Step, i: int, layer: Mixing) -> None:
        """How a step reads the activation here, or the picture."""
        if self.x is None:
            values = self.channels * self.unshuffle
            depth = values * self.unshuffle
            self.check_picture(i, values)
            step.load, step.clamp = self.unshuffle, self.clamp
            step.into_pitch, step.split = self.row_of_picture(depth)
            if isinstance(layer, spec.SpectralLinear):  # reads floats
                step.into_pitch, step.split = depth, False
            step.scratch += self.scratch(values=step.width * step.into_pitch)
            if self.packer.bf16:
                step.scratch += self.scratch(floats=step.width * step.into_pitch)
        elif isinstance(layer, spec.Conv):
            self.x.border = step.reach = 1

    def write_by(self, step: Step, i: int, cout: int, larger: int, skip: str | None, ends: bool) -> None:
        """How a step writes ``cout`` channels, of ``larger`` times its rows and columns, or the picture."""
        if ends:
            step.store = larger
            self.check_picture(i, cout * step.store)
            step.out_pitch = pad16(cout * step.store**2)
            step.scratch += self.scratch(floats=step.width * step.out_pitch)
            return
        out = self.activation(step.rows * larger, step.width * larger, cout)
        step.out, step.out_stride = out, larger
        if skip is not None:
            step.add = self.kept[skip]
            step.length = out.width * out.pitch

    def multiply_nothing(self, step: Step, shuffle: int) -> None:
        """Products of a step that only moves pixels."""
        channels, r, upsample = self.channels, self.unshuffle, self.upsample
        step.products = lambda: self.products.identity(step, channels, r, shuffle, upsample)

    def multiply_by(
        self, step: Step, i: int, layer: Mixing, by_pixel: int, shuffle: int, at_end: bool
    ) -> None:
        """Products of a step with the matrices of layer i, packed once it is known where all lies."""
        r, upsample = self.unshuffle, self.upsample
        if isinstance(layer, spec.SpectralLinear):
            outputs = layer.cout // shuffle**2 if step.out is None else step.out.pitch
            outputs *= shuffle**2
            step.scratch += self.scratch(floats=step.width * layer.size)
            step.scratch += self.scratch(floats=outputs) + self.scratch(values=outputs)
            step.spectral = lambda: self.products.spectral(i, layer, step, r, shuffle)
        elif isinstance(layer, spec.Conv):
            step.products = lambda: self.products.conv(i, layer, step, by_pixel, shuffle, upsample, at_end)
        else:
            at_edge = at_end or step.into is None or (i > 0 and spec.is_global(self.layers[i - 1]))
            step.products = lambda: self.products.linear(i, layer, step, r, shuffle, at_edge)

    def winograd(self, layer: spec.Layer) -> bool:
        return self.packer.winograd and geometry.winograd(layer)

    def to_winograd(self, step: Step) -> None:
        """Make a direct product one of Winograd's: the tiles of a strip, and what they take in scratch."""
        tile_bytes = 36 * (self.value_bytes * step.into.pitch + 4 * step.out.pitch)
        step.kind = "winograd"
        step.strip = max(WINOGRAD_BYTES // tile_bytes // WINOGRAD_UNIT, 1) * WINOGRAD_UNIT
        step.scratch = self.scratch(values=36 * (step.strip * step.into.pitch + BLOCK))
        step.scratch += self.scratch(floats=36 * (step.strip * step.out.pitch + BLOCK))

    # --- blocks -----------------------------------------------------------------------------

    def res_block(self, i: int, layer: spec.ResBlock) -> None:
        x = self.current(i)
        if layer.pool:
            x = self.pool(i, layer, x)
        x.border = 1
        y = x
        for n, name in enumerate((0, 2, 4)):
            out = self.activation(x.height, x.width, layer.channels)
            step = Step(
                "gemm", self.label(i, f"ResBlock.{name}"), x.height, x.width, into=y, out=out, relu=True,
                residual=x if n == 2 else None,
            )  # fmt: skip
            y.border = step.reach = 1
            step.products = lambda step=step, name=name: self.products.res(i, step, name)
            if self.winograd(layer):
                self.to_winograd(step)
            self.steps.append(step)
            y = out
        self.x = y

    def pool(self, i: int, layer: spec.ResBlock, x: Activation) -> Activation:
        wide = layer.WIDTH * layer.channels
        if wide % BLOCK:
            raise ConfigError(f"layer {self.first + i}: a pool stage needs a multiple of 4 channels")
        doubles = 8 * (x.pitch + 1) * x.pitch // self.value_bytes
        moments = Activation(-(-x.height // POOL_ROWS), 1, x.pitch, doubles)
        scale = Activation(2, 1, wide, 4 * wide // self.value_bytes)  # floats
        out = self.activation(x.height, x.width, layer.channels)
        vectors, widen, narrow = self.products.pool(i, x, out, layer.GROUPS)
        pool = Pool(*vectors, GROUP_NORM_EPSILON, moments, scale)
        scratch = self.scratch(floats=x.width * wide)
        if self.packer.bf16:
            scratch += self.scratch(values=x.width * wide)
        size = (x.height, x.width)
        self.steps.append(
            Step("pool_moments", self.label(i, "pool moments"), *size, into=x, pool=pool,
                 scratch=self.scratch(floats=x.width * x.pitch))
        )  # fmt: skip
        self.steps.append(Step("pool_scale", self.label(i, "pool scale"), *size, pool=pool))
        self.steps.append(
            Step("pool_apply", self.label(i, "pool apply"), *size, into=x, out=out, residual=x,
                 products=[widen], expand=[narrow], pool=pool, scratch=scratch)
        )  # fmt: skip
        return out

    def zenith_block(self, i: int, layer: spec.ZenithBlock) -> int:
        x = self.current(i)
        next_layer, relu = i + 1, False
        if next_layer < len(self.layers) and isinstance(self.layers[next_layer], spec.Relu):
            next_layer, relu = next_layer + 1, True
        # In place, unless a skip needs the input later: half the memory, and less of it to move.
        keep = any(x is kept for kept in self.kept.values())
        out = self.activation(x.height, x.width, layer.channels) if keep else x
        band = self.band(layer, x)
        mix = self.products.mix(i, layer, band)
        halo = 3 if layer.eyes else 0
        u_plane, e_plane = (band + halo) * x.width * mix.lane, band * x.width * mix.lane
        name = f"ZenithBlock {layer.channels}/{layer.hidden}" + (" WHT" if layer.tile else "")
        step = Step(
            "mix", self.label(i, name), x.height, x.width, into=x, out=out, residual=x, relu=relu, mix=mix,
            scratch=self.scratch(values=mix.planes * (u_plane + e_plane)),
        )  # fmt: skip
        step.products, step.expand = self.products.zenith(i, layer, x, out, u_plane, e_plane)
        self.steps.append(step)
        self.x = out
        return next_layer

    def band(self, layer: spec.ZenithBlock, x: Activation) -> int:
        """Rows that a Zenith block works on at a time: whole tiles, and no fewer pixels than pay."""
        unit = layer.tile or 1
        rows = unit * -(-LEAST_BAND_PIXELS // (unit * x.width))
        return min(rows, -(-x.height // unit) * unit)
