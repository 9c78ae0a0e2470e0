//! The picture, by divide and conquer: a tile is two smaller tiles, until it is small enough to compute.

use satin::Shared;
use serde::{Deserialize, Serialize};

use crate::maths::{Noise, Vec3};
use crate::scene::Scene;
use crate::shade::{Effort, encoded, light, tone_mapped};

/// Red, green, blue.
pub type Pixel = [u8; 3];

/// A tile of at most this width and height is not divided: some milliseconds of work, against less than a microsecond
/// that a spawn costs.
const LEAF: u32 = 16;

/// Samples are taken at multiples of 1 / `FINE` of a pixel.
const FINE: u32 = 256;

/// The most that [`Shot::detail`] may be: then neighbouring samples are one step of `FINE` apart.
pub const MAX_DETAIL: u32 = FINE.ilog2();

/// Colours (0..1) that differ by more than this have something between them.
const CONTRAST: f64 = 0.05;

/// How the picture is to be taken.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Shot {
    pub width: u32,
    pub height: u32,
    /// Reflections of reflections of reflections ...
    pub bounces: u32,
    /// How often a pixel may be quartered where it is not all of one colour.
    pub detail: u32,
}

impl Shot {
    fn whole(&self) -> Tile {
        Tile {
            left: 0,
            top: 0,
            width: self.width,
            height: self.height,
        }
    }

    pub fn pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }
}

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Tile {
    left: u32,
    top: u32,
    width: u32,
    height: u32,
}

/// The picture, row by row, computed by everyone there is.
pub fn on_all_cores(scene: &Shared<Scene>, shot: Shot) -> Vec<Pixel> {
    render(scene, shot, shot.whole())
}

/// The same without a single spawn: the plain recursive program, to compare with.
pub fn on_one_core(scene: &Shared<Scene>, shot: Shot) -> Vec<Pixel> {
    satin::seq!(render(scene, shot, shot.whole()))
}

/// The pixels of a tile, row by row.
///
/// The one function here that Satin knows: the two calls of itself may run on other cores, or on other machines, each of
/// which gets the scene once, before the first of its jobs. The result does not depend on who computes what, since a
/// pixel's randomness comes from its place alone.
#[satin::spawnable]
fn render(scene: &Shared<Scene>, shot: Shot, tile: Tile) -> Vec<Pixel> {
    if tile.width <= LEAF && tile.height <= LEAF {
        return expose(scene, &shot, tile);
    }
    let (one, other) = tile.halves();
    let first = render(scene, shot, one);
    let second = render(scene, shot, other);
    satin::sync!();
    tile.joined(first, second)
}

impl Tile {
    /// Cuts across the longer side, at a multiple of `LEAF` from its start, so that no leaf is a sliver.
    fn halves(self) -> (Tile, Tile) {
        let cut = |length: u32| (length / 2).next_multiple_of(LEAF);
        if self.width > self.height {
            let width = cut(self.width);
            (
                Tile { width, ..self },
                Tile {
                    left: self.left + width,
                    width: self.width - width,
                    ..self
                },
            )
        } else {
            let height = cut(self.height);
            (
                Tile { height, ..self },
                Tile {
                    top: self.top + height,
                    height: self.height - height,
                    ..self
                },
            )
        }
    }

    /// The inverse of [`halves`](Tile::halves), for their pixels.
    fn joined(self, mut first: Vec<Pixel>, second: Vec<Pixel>) -> Vec<Pixel> {
        let (one, other) = self.halves();
        if one.width == self.width {
            first.extend(second);
            return first;
        }
        let rows = first
            .chunks(one.width as usize)
            .zip(second.chunks(other.width as usize));
        rows.flat_map(|(left, right)| left.iter().chain(right))
            .copied()
            .collect()
    }
}

/// Computes the pixels of a small tile.
fn expose(scene: &Scene, shot: &Shot, tile: Tile) -> Vec<Pixel> {
    let film = Film { scene, shot };
    let row = |y: u32| -> Vec<Vec3> {
        let corner = |x| film.corner((tile.left + x) * FINE, (tile.top + y) * FINE);
        (0..=tile.width).map(corner).collect()
    };
    let mut pixels = Vec::with_capacity((tile.width * tile.height) as usize);
    let mut above = row(0);
    for y in 0..tile.height {
        let below = row(y + 1);
        for x in 0..tile.width {
            let i = x as usize;
            let corners = [above[i], above[i + 1], below[i], below[i + 1]];
            let color = film.area((tile.left + x) * FINE, (tile.top + y) * FINE, FINE, corners);
            pixels.push([encoded(color.x), encoded(color.y), encoded(color.z)]);
        }
        above = below;
    }
    pixels
}

/// Samples and averages. Coordinates are in steps of 1 / `FINE` of a pixel, from the picture's upper left.
struct Film<'a> {
    scene: &'a Scene,
    shot: &'a Shot,
}

impl Film<'_> {
    /// The colour of a square whose corners are known: their mean, or, if they differ, that of its quarters. So most
    /// pixels cost one sample (corners are shared), and edges many (Whitted, 1980).
    fn area(&self, x: u32, y: u32, size: u32, corners: [Vec3; 4]) -> Vec3 {
        // What is wrong with a quarter makes a quarter of that difference to the pixel.
        let tolerance = CONTRAST * f64::from(FINE / size);
        if size <= FINE >> self.shot.detail || spread(&corners) <= tolerance {
            return mean(corners);
        }
        let [a, c, g, i] = corners;
        let half = size / 2;
        // a b c
        // d e f
        // g h i
        let (b, d) = (self.between(x + half, y), self.between(x, y + half));
        let e = self.between(x + half, y + half);
        let (f, h) = (
            self.between(x + size, y + half),
            self.between(x + half, y + size),
        );
        mean([
            self.area(x, y, half, [a, b, d, e]),
            self.area(x + half, y, half, [b, c, e, f]),
            self.area(x, y + half, half, [d, e, g, h]),
            self.area(x + half, y + half, half, [e, f, h, i]),
        ])
    }

    /// A sample that may have to stand for a whole pixel.
    fn corner(&self, x: u32, y: u32) -> Vec3 {
        self.sample(x, y, 4)
    }

    /// A sample among many of its pixel: their errors average out.
    fn between(&self, x: u32, y: u32) -> Vec3 {
        self.sample(x, y, 1)
    }

    fn sample(&self, x: u32, y: u32, rays: u32) -> Vec3 {
        let (width, height) = (f64::from(self.shot.width), f64::from(self.shot.height));
        let (x, y) = (
            f64::from(x) / f64::from(FINE),
            f64::from(y) / f64::from(FINE),
        );
        let ray = self
            .scene
            .camera
            .ray((x - width / 2.0) / height, (height / 2.0 - y) / height);
        let effort = Effort {
            rays,
            bounces: self.shot.bounces,
            weight: 1.0,
        };
        tone_mapped(light(self.scene, &ray, effort, &mut Noise::at(x, y)))
    }
}

/// The largest difference between the colours.
fn spread(&[a, b, c, d]: &[Vec3; 4]) -> f64 {
    let range = a.max(b).max(c.max(d)) - a.min(b).min(c.min(d));
    range.largest()
}

fn mean([a, b, c, d]: [Vec3; 4]) -> Vec3 {
    (a + b + c + d) * 0.25
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::Builtin;

    const SHOT: Shot = Shot {
        width: 70,
        height: 37,
        bounces: 1,
        detail: 1,
    };

    #[test]
    fn divided_and_joined_is_the_whole() {
        let scene = Shared::new(Builtin::Flake.scene());
        let whole = expose(&scene, &SHOT, SHOT.whole());
        assert!(on_all_cores(&scene, SHOT) == whole);
        assert!(on_one_core(&scene, SHOT) == whole);
    }

    #[test]
    fn halves_never_are_empty() {
        for (width, height) in [(17, 1), (1, 17), (33, 32), (1000, 3)] {
            let (one, other) = Tile {
                left: 0,
                top: 0,
                width,
                height,
            }
            .halves();
            assert!(
                [one, other]
                    .iter()
                    .all(|tile| tile.width > 0 && tile.height > 0),
                "{width}x{height}"
            );
        }
    }
}
