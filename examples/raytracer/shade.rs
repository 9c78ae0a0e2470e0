//! The colour of a ray: sunlight with soft shadows, skylight, reflections.

use crate::geometry::{Hit, Ray};
use crate::maths::{Noise, Vec3};
use crate::scene::{Material, Scene};

/// How bright the sun's disc is in a mirror, in multiples of what it lends to a wall. (A real one would have some
/// 10000, which a picture cannot show.)
const SUN_DISC: f64 = 12.0;

/// Reflections that contribute less than this are left out.
const FAINT: f64 = 0.01;

/// What a ray may cost.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Rays sent to the sun, and as many to the sky, from each point.
    pub rays: u32,
    /// Further reflections.
    pub bounces: u32,
    /// What part of the light found will reach the eye, at most.
    pub weight: f64,
}

/// The light that comes along a ray.
pub fn light(scene: &Scene, ray: &Ray, effort: Effort, noise: &mut Noise) -> Vec3 {
    let Some(hit) = scene.hit(ray) else {
        return open_sky(scene, ray.direction);
    };
    let color = surface(scene, ray, &hit, effort, noise);
    color.lerp(scene.sky.horizon, scene.haze(&hit))
}

fn open_sky(scene: &Scene, direction: Vec3) -> Vec3 {
    let sky = scene.sky(direction);
    if scene.in_sun(direction) {
        sky + scene.sun.color * SUN_DISC
    } else {
        sky
    }
}

fn surface(scene: &Scene, ray: &Ray, hit: &Hit, effort: Effort, noise: &mut Noise) -> Vec3 {
    let point = ray.at(hit.distance);
    let material = scene.material(hit, point);
    // Surfaces have no inside: they are seen from the side the ray comes from.
    let towards = |normal: Vec3| {
        if normal.dot(ray.direction) > 0.0 {
            -normal
        } else {
            normal
        }
    };
    let face = towards(hit.face);
    let normal = if hit.normal.dot(face) < 0.0 {
        -hit.normal
    } else {
        hit.normal
    };

    let mirrored = fresnel(&material, (-ray.direction.dot(normal)).max(0.0));
    let mut color = Vec3::ZERO;
    if !material.metal {
        let light = sunlight(scene, point, face, normal, effort.rays, noise)
            + skylight(scene, point, face, normal, effort.rays, noise);
        color += material.color * light * (1.0 - mirrored.largest());
    }
    let effort = Effort {
        weight: effort.weight * mirrored.largest(),
        ..effort
    };
    if effort.weight > FAINT {
        color += mirrored * reflection(scene, ray.direction, point, face, normal, effort, noise);
    }
    color
}

/// The part of the light that a surface mirrors, for each colour (Schlick's approximation).
fn fresnel(material: &Material, cosine: f64) -> Vec3 {
    let straight = match material {
        Material {
            metal: true, color, ..
        } => *color,
        Material { reflect, .. } => Vec3::ONE * *reflect,
    };
    if straight == Vec3::ZERO {
        return Vec3::ZERO;
    }
    let slant = 1.0 - cosine.min(1.0);
    let slant = slant * slant * slant * slant * slant;
    straight.lerp(Vec3::ONE, slant)
}

fn sunlight(
    scene: &Scene,
    point: Vec3,
    face: Vec3,
    normal: Vec3,
    rays: u32,
    noise: &mut Noise,
) -> Vec3 {
    let sun = &scene.sun;
    let cosine = normal.dot(sun.direction);
    if cosine <= 0.0 {
        return Vec3::ZERO;
    }
    let (u, v) = sun.direction.frame();
    let seen = noise.disc(rays).filter(|(x, y)| {
        let direction = (sun.direction + (u * *x + v * *y) * sun.size).normalized();
        direction.dot(face) > 0.0 && !scene.blocks(&Scene::leaving(point, face, direction))
    });
    sun.color * (cosine * seen.count() as f64 / f64::from(rays))
}

/// Light from the sky, less what is in the way (ambient occlusion): that shows itself, dimly.
fn skylight(
    scene: &Scene,
    point: Vec3,
    face: Vec3,
    normal: Vec3,
    rays: u32,
    noise: &mut Noise,
) -> Vec3 {
    let (u, v) = normal.frame();
    let mut sum = Vec3::ZERO;
    for (x, y) in noise.disc(rays) {
        // A disc seen from below its dome: directions come as often as they count (Malley's method).
        let direction = u * x + v * y + normal * (1.0 - x * x - y * y).max(0.0).sqrt();
        let ray = Scene::leaving(point, face, direction);
        sum += match scene.hit(&ray) {
            None => scene.sky(direction),
            Some(hit) => scene.material(&hit, ray.at(hit.distance)).color * scene.sky.horizon * 0.4,
        };
    }
    sum * (1.0 / f64::from(rays))
}

fn reflection(
    scene: &Scene,
    direction: Vec3,
    point: Vec3,
    face: Vec3,
    normal: Vec3,
    effort: Effort,
    noise: &mut Noise,
) -> Vec3 {
    let mut mirrored = direction.reflected(normal);
    if mirrored.dot(face) <= 0.0 {
        // The smooth normal sends it into the true surface.
        mirrored = direction.reflected(face);
    }
    if effort.bounces == 0 {
        // Something is there, but we do not look: on average it is darker than the sky.
        return scene.sky(mirrored) * 0.5;
    }
    let ray = Scene::leaving(point, face, mirrored.normalized());
    let effort = Effort {
        rays: 1,
        bounces: effort.bounces - 1,
        ..effort
    };
    light(scene, &ray, effort, noise)
}

/// How long the film is exposed.
const EXPOSURE: f64 = 0.6;

/// From light, which knows no upper bound, to 0..1: Krzysztof Narkowicz' fit of the ACES film curve.
pub fn tone_mapped(light: Vec3) -> Vec3 {
    (light * EXPOSURE).map(|x| ((x * (2.51 * x + 0.03)) / (x * (2.43 * x + 0.59) + 0.14)).min(1.0))
}

/// The byte that shows this brightness on a screen. sRGB's curve is a power; this is a sum of roots, which computers
/// agree on, less than half a byte beside it (after Ian Taylor).
pub fn encoded(brightness: f64) -> u8 {
    let root2 = brightness.max(0.0).sqrt();
    let root4 = root2.sqrt();
    let root8 = root4.sqrt();
    let srgb = 0.585_122_381 * root2 + 0.783_140_355 * root4 - 0.368_262_736 * root8;
    (srgb * 255.0 + 0.5) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gamma_curve_is_that_of_srgb() {
        for i in 1..=100 {
            let x = f64::from(i) / 100.0;
            let exact = 255.0 * (1.055 * x.powf(1.0 / 2.4) - 0.055);
            assert!(
                (f64::from(encoded(x)) - exact).abs() < 1.5,
                "{x}: {} not {exact}",
                encoded(x)
            );
        }
        assert_eq!((encoded(0.0), encoded(1.0)), (0, 255));
    }

    #[test]
    fn more_is_mirrored_at_a_slant() {
        let varnish = Material {
            color: Vec3::ONE,
            reflect: 0.04,
            metal: false,
        };
        assert!((fresnel(&varnish, 1.0).x - 0.04).abs() < 1e-12);
        assert!((fresnel(&varnish, 0.0).x - 1.0).abs() < 1e-12);
        let matt = Material {
            reflect: 0.0,
            ..varnish
        };
        assert_eq!(fresnel(&matt, 0.0), Vec3::ZERO);
    }
}
