//! The picture: a corner of the Mandelbrot set, lit from the side. A pixel depends on nothing but its place, so
//! every host computes the same bytes.

/// Bytes of a pixel: red, green, blue, alpha.
pub(crate) const PIXEL: usize = 4;

/// Samples of a pixel, on a rotated grid; computed side by side so that the compiler can use vector registers.
const SAMPLES: usize = 4;
const OFFSETS: [(f64, f64); SAMPLES] = [(0.125, 0.625), (0.375, 0.125), (0.625, 0.875), (0.875, 0.375)];
const CENTRE: (f64, f64) = (-0.743_643_135, 0.131_825_963);
/// Height of the picture in the complex plane.
const SPAN: f64 = 0.000_18;
const MAX_ITERATIONS: u32 = 3000;
/// Squared; large, so that the smooth count has no visible steps.
const ESCAPE: f64 = 1.0e6;
/// Direction of the light and its height over the plane.
const LIGHT: (f64, f64, f64) = (-std::f64::consts::FRAC_1_SQRT_2, std::f64::consts::FRAC_1_SQRT_2, 1.3);

/// A picture's size in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// A rectangle of pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl Tile {
    /// Bytes of the tile's pixels.
    pub(crate) fn bytes(&self) -> usize {
        self.width as usize * self.height as usize * PIXEL
    }
    /// Bytes of one row.
    pub(crate) fn row(&self) -> usize {
        self.width as usize * PIXEL
    }
}

/// Renders a tile. `out` holds at least `tile.bytes()`.
pub(crate) fn fine(size: Size, tile: Tile, out: &mut [u8]) {
    for (row, y) in out.chunks_exact_mut(tile.row()).zip(tile.y..tile.y + tile.height) {
        for (pixel, x) in row.chunks_exact_mut(PIXEL).zip(tile.x..tile.x + tile.width) {
            pixel.copy_from_slice(&colour_at(size, x, y));
        }
    }
}

/// Renders one pixel of every `block` by `block`: a first impression for a fraction of the time.
pub(crate) fn coarse(size: Size, tile: Tile, block: u32, out: &mut [u8]) {
    let block = block.max(1);
    let mut line = Vec::with_capacity(tile.row());
    for (row, y) in out.chunks_exact_mut(tile.row()).zip(0..tile.height) {
        if y % block == 0 {
            line.clear();
            let middle = tile.y + (y + block / 2).min(tile.height - 1);
            for x in (0..tile.width).step_by(block as usize) {
                let pixel = colour_at(size, tile.x + (x + block / 2).min(tile.width - 1), middle);
                for _ in 0..block.min(tile.width - x) {
                    line.extend_from_slice(&pixel);
                }
            }
        }
        row.copy_from_slice(&line);
    }
}

/// A pixel's colour: the mean of its samples, in linear light.
fn colour_at(size: Size, x: u32, y: u32) -> [u8; PIXEL] {
    let scale = SPAN / f64::from(size.height);
    let mut re = [0.0; SAMPLES];
    let mut im = [0.0; SAMPLES];
    for ((re, im), (dx, dy)) in re.iter_mut().zip(&mut im).zip(OFFSETS) {
        *re = CENTRE.0 + (f64::from(x) + dx - f64::from(size.width) / 2.0) * scale;
        *im = CENTRE.1 - (f64::from(y) + dy - f64::from(size.height) / 2.0) * scale;
    }
    let mut sum = [0.0; 3];
    for escape in iterate(re, im) {
        for (sum, part) in sum.iter_mut().zip(shade(escape)) {
            *sum += part / SAMPLES as f64;
        }
    }
    let [red, green, blue] = sum.map(to_srgb);
    [red, green, blue, u8::MAX]
}

/// How a point left the set's neighbourhood, or None when it never did.
#[derive(Debug, Clone, Copy)]
struct Escape {
    /// Iterations, with a fraction that makes it continuous.
    count: f64,
    /// The direction of steepest descent of the potential: where the surface faces.
    normal: (f64, f64),
}

/// Iterates z = z^2 + c and its derivative for all samples at once.
fn iterate(mut re: [f64; SAMPLES], mut im: [f64; SAMPLES]) -> [Option<Escape>; SAMPLES] {
    let mut found = [None; SAMPLES];
    let (mut zr, mut zi) = ([0.0_f64; SAMPLES], [0.0_f64; SAMPLES]);
    let (mut dr, mut di) = ([0.0_f64; SAMPLES], [0.0_f64; SAMPLES]);
    let mut square = [0.0_f64; SAMPLES];
    for n in 1..=MAX_ITERATIONS {
        step(&re, &im, (&mut zr, &mut zi), (&mut dr, &mut di), &mut square);
        if square.iter().all(|s| *s <= ESCAPE) {
            continue;
        }
        let points = zr.iter_mut().zip(&mut zi).zip(dr.iter().zip(&di)).zip(re.iter_mut().zip(&mut im));
        for ((((zr, zi), (dr, di)), (re, im)), slot) in points.zip(&mut found) {
            if *zr * *zr + *zi * *zi > ESCAPE {
                *slot = Some(escape(n, (*zr, *zi), (*dr, *di)));
                // At the origin it rests: the other samples keep the fast path above.
                (*zr, *zi, *re, *im) = (0.0, 0.0, 0.0, 0.0);
            }
        }
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    found
}

/// One iteration of every sample.
#[inline(always)]
fn step(
    re: &[f64; SAMPLES],
    im: &[f64; SAMPLES],
    z: (&mut [f64; SAMPLES], &mut [f64; SAMPLES]),
    d: (&mut [f64; SAMPLES], &mut [f64; SAMPLES]),
    square: &mut [f64; SAMPLES],
) {
    let samples = re.iter().zip(im).zip(z.0).zip(z.1).zip(d.0).zip(d.1).zip(square);
    for ((((((re, im), zr), zi), dr), di), square) in samples {
        let derivative = (2.0 * (*zr * *dr - *zi * *di) + 1.0, 2.0 * (*zr * *di + *zi * *dr));
        let next = (*zr * *zr - *zi * *zi + re, 2.0 * *zr * *zi + im);
        (*dr, *di) = derivative;
        (*zr, *zi) = next;
        *square = next.0 * next.0 + next.1 * next.1;
    }
}

fn escape(n: u32, z: (f64, f64), d: (f64, f64)) -> Escape {
    let log = (z.0 * z.0 + z.1 * z.1).ln() / 2.0;
    let count = f64::from(n) + 1.0 - (log / (ESCAPE.ln() / 2.0)).log2();
    // z / d, made a unit vector.
    let u = (z.0 * d.0 + z.1 * d.1, z.1 * d.0 - z.0 * d.1);
    let length = u.0.hypot(u.1);
    let normal = if length.is_finite() && length > 0.0 { (u.0 / length, u.1 / length) } else { (0.0, 0.0) };
    Escape { count, normal }
}

/// A sample's colour in linear light.
fn shade(escape: Option<Escape>) -> [f64; 3] {
    let Some(Escape { count, normal }) = escape else {
        return [0.002, 0.003, 0.01];
    };
    let facing = (normal.0 * LIGHT.0 + normal.1 * LIGHT.1 + LIGHT.2) / (1.0 + LIGHT.2);
    let light = 0.25 + 0.95 * facing.clamp(0.0, 1.0);
    let gloss = 0.12 * facing.clamp(0.0, 1.0).powi(24);
    palette(count.max(1.0).ln() * 1.6 + 0.55).map(|part| part * light + gloss)
}

/// A closed ring of colours: night blue, sky, ivory, amber, wine.
fn palette(turn: f64) -> [f64; 3] {
    const RING: [[f64; 3]; 6] = [
        [0.006, 0.020, 0.095],
        [0.020, 0.170, 0.480],
        [0.240, 0.620, 0.800],
        [0.960, 0.870, 0.640],
        [0.930, 0.370, 0.045],
        [0.210, 0.020, 0.060],
    ];
    let place = turn.rem_euclid(1.0) * RING.len() as f64;
    let part = place.fract();
    let smooth = part * part * (3.0 - 2.0 * part);
    let from = (0..RING.len()).rev().find(|i| *i as f64 <= place).unwrap_or(0);
    let mut pair = RING.iter().cycle().skip(from);
    let (Some(from), Some(to)) = (pair.next(), pair.next()) else {
        return [0.0; 3];
    };
    let mut mixed = [0.0; 3];
    for ((mixed, from), to) in mixed.iter_mut().zip(from).zip(to) {
        *mixed = from + (to - from) * smooth;
    }
    mixed
}

/// Linear light to an sRGB byte.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Clamped; `as` saturates besides.
fn to_srgb(linear: f64) -> u8 {
    let linear = linear.clamp(0.0, 1.0);
    let encoded = if linear <= 0.003_130_8 { 12.92 * linear } else { 1.055 * linear.powf(1.0 / 2.4) - 0.055 };
    (encoded * 255.0 + 0.5) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { width: 96, height: 54 };

    fn render(tile: Tile) -> Vec<u8> {
        let mut out = vec![0; tile.bytes()];
        fine(SIZE, tile, &mut out);
        out
    }

    #[test]
    fn a_pixel_is_the_same_in_every_tile() {
        let whole = render(Tile { x: 0, y: 0, width: 96, height: 54 });
        let part = render(Tile { x: 10, y: 7, width: 5, height: 3 });
        for y in 0..3 {
            let start = ((7 + y) * 96 + 10) * PIXEL;
            assert_eq!(part[y * 5 * PIXEL..(y + 1) * 5 * PIXEL], whole[start..start + 5 * PIXEL]);
        }
    }

    #[test]
    fn the_picture_is_no_flat_surface() {
        let whole = render(Tile { x: 0, y: 0, width: 96, height: 54 });
        let mut colours: Vec<_> = whole.chunks(PIXEL).collect();
        colours.sort_unstable();
        colours.dedup();
        assert!(colours.len() > 1000, "{} colours", colours.len());
        assert!(whole.chunks(PIXEL).all(|pixel| pixel[3] == 255));
    }

    #[test]
    fn coarse_fills_blocks_and_cut_edges() {
        let tile = Tile { x: 3, y: 2, width: 13, height: 11 };
        let mut out = vec![0; tile.bytes()];
        coarse(SIZE, tile, 8, &mut out);
        let pixel = |x: usize, y: usize| out[(y * 13 + x) * PIXEL..][..PIXEL].to_vec();
        assert_eq!(pixel(0, 0), pixel(7, 7));
        assert_eq!(pixel(8, 8), pixel(12, 10));
        assert_eq!(pixel(0, 0), colour_at(SIZE, 3 + 4, 2 + 4));
        assert!(out.chunks(PIXEL).all(|pixel| pixel[3] == 255));
    }

    #[test]
    fn the_origin_is_inside_and_far_points_are_outside() {
        let found = iterate([0.0, 2.5, -0.1, 0.3], [0.0, 0.0, 0.1, 0.9]);
        assert!(found[0].is_none() && found[1].is_some() && found[2].is_none() && found[3].is_some());
    }

    #[test]
    fn srgb_keeps_the_ends() {
        assert_eq!((to_srgb(0.0), to_srgb(1.0), to_srgb(7.0), to_srgb(-1.0)), (0, 255, 255, 0));
    }
}
