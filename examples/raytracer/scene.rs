//! What there is to see, in the form in which rays look at it and jobs carry it.

use serde::{Deserialize, Serialize};

use crate::bvh::Bvh;
use crate::camera::Camera;
use crate::geometry::{Hit, Ray, Shape, Vertex};
use crate::maths::{Vec3, vec3};

/// A scene ready to be rendered. Everything in it is plain data: other machines get it as it is, BVH and all.
#[derive(Debug, Serialize, Deserialize)]
pub struct Scene {
    pub camera: Camera,
    pub sky: Sky,
    pub sun: Sun,
    floor: Option<Floor>,
    materials: Vec<Material>,
    vertices: Vec<Vertex>,
    /// In the order of the BVH's leaves.
    shapes: Vec<Shape>,
    bvh: Bvh,
}

/// A gradient from the horizon up.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sky {
    pub horizon: Vec3,
    pub zenith: Vec3,
}

impl Default for Sky {
    fn default() -> Sky {
        Sky {
            horizon: vec3(0.84, 0.90, 0.96),
            zenith: vec3(0.26, 0.44, 0.80),
        }
    }
}

/// The only lamp: a disc in the sky, so its shadows have soft edges.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sun {
    /// From the scene to the sun, of any length.
    pub direction: Vec3,
    pub color: Vec3,
    /// The disc's radius at distance 1. The sun over our heads has 0.0047; the larger, the softer.
    pub size: f64,
}

impl Default for Sun {
    fn default() -> Sun {
        Sun {
            direction: vec3(0.7, 0.8, 0.5),
            color: vec3(2.6, 2.35, 1.95),
            size: 0.05,
        }
    }
}

/// An endless horizontal chequered plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Floor {
    pub height: f64,
    pub colors: [Vec3; 2],
    /// The edge of a square.
    pub square: f64,
    pub reflect: f64,
}

impl Default for Floor {
    fn default() -> Floor {
        Floor {
            height: 0.0,
            colors: [vec3(0.56, 0.53, 0.48), vec3(0.06, 0.06, 0.07)],
            square: 1.0,
            reflect: 0.04,
        }
    }
}

/// How a surface answers light.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Material {
    pub color: Vec3,
    /// The part of the light that is mirrored when looked at straight on; more of it is at a slant (Fresnel). 0 is
    /// matt, 0.04 is varnish. A metal mirrors all, tinted with its colour.
    #[serde(default)]
    pub reflect: f64,
    #[serde(default)]
    pub metal: bool,
}

/// Stands for the floor where a material's index is expected.
const FLOOR: u32 = u32::MAX;

/// Rays start this far from the surface they leave, lest rounding make them meet it again.
const CLEARANCE: f64 = 1e-6;

/// The shapes of a scene under construction.
#[derive(Debug, Default)]
pub struct Model {
    pub vertices: Vec<Vertex>,
    pub shapes: Vec<Shape>,
}

impl Scene {
    pub fn new(
        camera: Camera,
        sky: Sky,
        sun: Sun,
        floor: Option<Floor>,
        materials: Vec<Material>,
        model: Model,
    ) -> Scene {
        let Model { vertices, shapes } = model;
        let bounds: Vec<_> = shapes.iter().map(|shape| shape.bounds(&vertices)).collect();
        let (bvh, order) = Bvh::build(&bounds);
        let shapes = order.iter().map(|&i| shapes[i as usize].clone()).collect();
        let sun = Sun {
            direction: sun.direction.normalized(),
            ..sun
        };
        Scene {
            camera,
            sky,
            sun,
            floor,
            materials,
            vertices,
            shapes,
            bvh,
        }
    }

    /// The first thing that the ray meets.
    pub fn hit(&self, ray: &Ray) -> Option<Hit> {
        let mut best = self.floor_hit(ray);
        let nearest = best.map_or(f64::INFINITY, |hit| hit.distance);
        self.bvh.visit(ray, nearest, |shape, nearest| {
            match self.shapes[shape].hit(&self.vertices, ray, nearest) {
                Some(hit) => {
                    best = Some(hit);
                    hit.distance
                }
                None => nearest,
            }
        });
        best
    }

    /// Whether the ray meets anything that casts a shadow.
    pub fn blocks(&self, ray: &Ray) -> bool {
        let mut blocked = self.floor_hit(ray).is_some();
        let nearest = if blocked { 0.0 } else { f64::INFINITY };
        self.bvh.visit(ray, nearest, |shape, nearest| {
            blocked = blocked
                || self.shapes[shape]
                    .hit(&self.vertices, ray, nearest)
                    .is_some();
            if blocked { 0.0 } else { nearest }
        });
        blocked
    }

    fn floor_hit(&self, ray: &Ray) -> Option<Hit> {
        let floor = self.floor.as_ref()?;
        let distance = (floor.height - ray.origin.y) / ray.direction.y;
        let normal = Vec3::UP;
        (distance > 0.0 && distance.is_finite()).then_some(Hit {
            distance,
            face: normal,
            normal,
            material: FLOOR,
        })
    }

    /// The material at a point that was hit.
    pub fn material(&self, hit: &Hit, point: Vec3) -> Material {
        match &self.floor {
            Some(floor) if hit.material == FLOOR => {
                let square = |x: f64| (x / floor.square).floor() as i64;
                let odd = (square(point.x) + square(point.z)).rem_euclid(2) as usize;
                Material {
                    color: floor.colors[odd],
                    reflect: floor.reflect,
                    metal: false,
                }
            }
            _ => self.materials[hit.material as usize],
        }
    }

    /// How much of the air one sees instead of the floor: far away a pixel covers more squares than it has samples.
    pub fn haze(&self, hit: &Hit) -> f64 {
        match &self.floor {
            Some(floor) if hit.material == FLOOR => {
                let far = 60.0 * floor.square;
                let d = hit.distance / far;
                d * d / (1.0 + d * d)
            }
            _ => 0.0,
        }
    }

    /// The sky without the sun.
    pub fn sky(&self, direction: Vec3) -> Vec3 {
        let down = 1.0 - direction.y.max(0.0);
        let down4 = down * down * down * down;
        // Most of the gradient is near the horizon.
        self.sky.zenith.lerp(self.sky.horizon, down4 * down)
    }

    /// Whether someone who looks in this direction, past everything, looks into the sun.
    pub fn in_sun(&self, direction: Vec3) -> bool {
        let cosine = direction.dot(self.sun.direction);
        cosine > 0.0 && cosine * cosine * (1.0 + self.sun.size * self.sun.size) > 1.0
    }

    /// A ray that leaves a surface at `point` on the side to which `face` points.
    pub fn leaving(point: Vec3, face: Vec3, direction: Vec3) -> Ray {
        Ray {
            origin: point + face * CLEARANCE,
            direction,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::Builtin;
    use crate::maths::Noise;

    /// The mesh scene: triangles, spheres and a floor, against a search that knows no tree.
    #[test]
    fn hit_and_blocks_agree_with_brute_force() {
        let scene = Builtin::Mesh.scene();
        let mut noise = Noise::at(5.0, 5.0);
        let mut hits = 0;
        for _ in 0..300 {
            let ray = scene.camera.ray(noise.unit() - 0.5, noise.unit() - 0.5);
            let slow = scene
                .shapes
                .iter()
                .filter_map(|shape| shape.hit(&scene.vertices, &ray, f64::INFINITY))
                .chain(scene.floor_hit(&ray))
                .map(|hit| hit.distance)
                .min_by(f64::total_cmp);
            assert_eq!(scene.hit(&ray).map(|hit| hit.distance), slow);
            assert_eq!(scene.blocks(&ray), slow.is_some());
            hits += usize::from(slow.is_some());
        }
        assert!(hits > 100, "a test that hits nothing tests nothing");
    }

    #[test]
    fn a_scene_survives_the_wire() {
        let scene = Builtin::Mesh.scene();
        let bytes = postcard::to_stdvec(&scene).expect("plain data");
        let copy: Scene = postcard::from_bytes(&bytes).expect("just written");
        let ray = scene.camera.ray(0.0, 0.0);
        assert_eq!(scene.hit(&ray), copy.hit(&ray));
    }
}
