//! Vectors, and the few functions the raytracer needs that `std` does not compute alike everywhere.
//!
//! A job may be stolen by another machine, so the same ray must have the same colour on all of them. IEEE 754 fixes
//! `+ - * /` and `sqrt` to the last bit; it does not fix `sin`, `cos` and `pow`. Nothing here calls those.

use std::ops::{Add, AddAssign, Index, Mul, Neg, Sub};

use serde::{Deserialize, Serialize};

/// A point, a direction or a colour (red, green, blue; linear light).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "[f64; 3]", into = "[f64; 3]")]
pub struct Vec3 {
    pub x: f64,
    pub y: f64,
    pub z: f64,
}

/// Short for `Vec3 { x, y, z }`.
pub const fn vec3(x: f64, y: f64, z: f64) -> Vec3 {
    Vec3 { x, y, z }
}

impl Vec3 {
    pub const ZERO: Vec3 = vec3(0.0, 0.0, 0.0);
    pub const ONE: Vec3 = vec3(1.0, 1.0, 1.0);
    pub const UP: Vec3 = vec3(0.0, 1.0, 0.0);

    pub fn dot(self, other: Vec3) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    pub fn cross(self, other: Vec3) -> Vec3 {
        vec3(
            self.y * other.z - self.z * other.y,
            self.z * other.x - self.x * other.z,
            self.x * other.y - self.y * other.x,
        )
    }

    pub fn length(self) -> f64 {
        self.dot(self).sqrt()
    }

    /// The same direction with length 1.
    pub fn normalized(self) -> Vec3 {
        self * (1.0 / self.length())
    }

    /// `self` at `t` = 0, `other` at `t` = 1.
    pub fn lerp(self, other: Vec3, t: f64) -> Vec3 {
        self * (1.0 - t) + other * t
    }

    /// The direction of a ray along `self` after it met a mirror with this normal.
    pub fn reflected(self, normal: Vec3) -> Vec3 {
        self - normal * (2.0 * self.dot(normal))
    }

    pub fn map(self, f: impl Fn(f64) -> f64) -> Vec3 {
        vec3(f(self.x), f(self.y), f(self.z))
    }

    pub fn min(self, other: Vec3) -> Vec3 {
        vec3(
            min(self.x, other.x),
            min(self.y, other.y),
            min(self.z, other.z),
        )
    }

    pub fn max(self, other: Vec3) -> Vec3 {
        vec3(
            max(self.x, other.x),
            max(self.y, other.y),
            max(self.z, other.z),
        )
    }

    pub fn smallest(self) -> f64 {
        min(min(self.x, self.y), self.z)
    }

    pub fn largest(self) -> f64 {
        max(max(self.x, self.y), self.z)
    }

    /// Two directions that make a right-angled frame with `self`, which must have length 1.
    pub fn frame(self) -> (Vec3, Vec3) {
        let aside = if self.y.abs() < 0.9 {
            Vec3::UP
        } else {
            vec3(1.0, 0.0, 0.0)
        };
        let u = aside.cross(self).normalized();
        (u, self.cross(u))
    }
}

impl From<[f64; 3]> for Vec3 {
    fn from([x, y, z]: [f64; 3]) -> Vec3 {
        vec3(x, y, z)
    }
}

impl From<Vec3> for [f64; 3] {
    fn from(v: Vec3) -> [f64; 3] {
        [v.x, v.y, v.z]
    }
}

impl Add for Vec3 {
    type Output = Vec3;
    fn add(self, other: Vec3) -> Vec3 {
        vec3(self.x + other.x, self.y + other.y, self.z + other.z)
    }
}

impl AddAssign for Vec3 {
    fn add_assign(&mut self, other: Vec3) {
        *self = *self + other;
    }
}

impl Sub for Vec3 {
    type Output = Vec3;
    fn sub(self, other: Vec3) -> Vec3 {
        vec3(self.x - other.x, self.y - other.y, self.z - other.z)
    }
}

impl Mul<f64> for Vec3 {
    type Output = Vec3;
    fn mul(self, by: f64) -> Vec3 {
        vec3(self.x * by, self.y * by, self.z * by)
    }
}

/// Component by component: a colour seen through a colour.
impl Mul for Vec3 {
    type Output = Vec3;
    fn mul(self, other: Vec3) -> Vec3 {
        vec3(self.x * other.x, self.y * other.y, self.z * other.z)
    }
}

impl Neg for Vec3 {
    type Output = Vec3;
    fn neg(self) -> Vec3 {
        vec3(-self.x, -self.y, -self.z)
    }
}

impl Index<usize> for Vec3 {
    type Output = f64;
    fn index(&self, axis: usize) -> &f64 {
        match axis {
            0 => &self.x,
            1 => &self.y,
            _ => &self.z,
        }
    }
}

/// One instruction, where `f64::min` takes five to be right about NaN. Boxes are asked a billion times.
fn min(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

fn max(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// Sine and cosine of an angle given in full turns, from their power series.
pub fn sin_cos_turns(turns: f64) -> (f64, f64) {
    let x = (turns - turns.round()) * std::f64::consts::TAU;
    let (mut sin, mut cos, mut term) = (0.0, 0.0, 1.0);
    // |x| <= pi: after 30 terms what is left out is below the last bit.
    for n in 0..30 {
        match n % 4 {
            0 => cos += term,
            1 => sin += term,
            2 => cos -= term,
            _ => sin -= term,
        }
        term = term * x / f64::from(n + 1);
    }
    (sin, cos)
}

/// The tangent of half of an angle in degrees.
pub fn tan_half_degrees(degrees: f64) -> f64 {
    let (sin, cos) = sin_cos_turns(degrees / 720.0);
    sin / cos
}

/// Numbers that look random, and depend on nothing but where in the picture they are used: whoever computes a pixel,
/// and however often, gets the same ones.
///
/// Neighbours get numbers that are far apart on purpose (multiples of irrational numbers, after Martin Roberts' R2
/// sequence), so that the error which few samples leave is a fine texture instead of grain.
pub struct Noise {
    /// The same at every place, other for every use there (SplitMix64, by Steele, Lea and Flood).
    state: u64,
    /// Other at every place.
    shift: (f64, f64),
}

impl Noise {
    /// `x` and `y` are in pixels.
    pub fn at(x: f64, y: f64) -> Noise {
        // Samples are mostly quarters of a pixel apart.
        let (x, y) = (4.0 * x, 4.0 * y);
        let u = x * 0.754_877_666_246_692_8 + y * 0.569_840_290_998_053_3;
        let v = x * 0.819_172_513_396_164_5 + y * 0.671_043_606_703_789_3;
        Noise {
            state: 0,
            shift: (u, v),
        }
    }

    /// Uniform in 0..1; the same sequence at every place.
    pub fn unit(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 11) as f64 / (1u64 << 53) as f64
    }

    /// `count` points spread evenly over the unit disc: points of a square, bent into a disc with nothing but square
    /// roots.
    pub fn disc(&mut self, count: u32) -> impl Iterator<Item = (f64, f64)> + use<> {
        let (u0, v0) = (self.unit() + self.shift.0, self.unit() + self.shift.1);
        (0..count).map(move |i| {
            let u = 2.0 * (u0 + f64::from(i) * 0.754_877_666_246_692_8).fract() - 1.0;
            let v = 2.0 * (v0 + f64::from(i) * 0.569_840_290_998_053_3).fract() - 1.0;
            (
                u * (1.0 - v * v / 2.0).sqrt(),
                v * (1.0 - u * u / 2.0).sqrt(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sine_and_cosine_agree_with_std() {
        for i in -40..40 {
            let turns = f64::from(i) / 17.0;
            let (sin, cos) = sin_cos_turns(turns);
            let angle = turns * std::f64::consts::TAU;
            assert!(
                (sin - angle.sin()).abs() < 1e-12 && (cos - angle.cos()).abs() < 1e-12,
                "{turns}"
            );
        }
    }

    #[test]
    fn noise_is_a_function_of_the_place() {
        let disc = |x, y| Noise::at(x, y).disc(100).collect::<Vec<_>>();
        assert_eq!(disc(3.0, 4.5), disc(3.0, 4.5));
        assert_ne!(disc(3.0, 4.5), disc(4.5, 3.0));
        assert!(
            disc(7.0, 7.0)
                .iter()
                .all(|(x, y)| x * x + y * y <= 1.0 + 1e-12)
        );
    }
}
