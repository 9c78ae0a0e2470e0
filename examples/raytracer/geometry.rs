//! Rays, boxes and the two shapes a scene is made of. Knows nothing of colours.

use serde::{Deserialize, Serialize};

use crate::maths::{Vec3, vec3};

/// A half-line. `direction` has length 1, so distances along it are distances.
#[derive(Clone, Copy, Debug)]
pub struct Ray {
    pub origin: Vec3,
    pub direction: Vec3,
}

impl Ray {
    /// One over the direction, for [`Aabb::entry`]. Where the ray runs along an axis plane that is a huge number
    /// instead of infinity, which would make 0 * infinity = NaN of a plane it runs in.
    pub fn inverse(&self) -> Vec3 {
        self.direction
            .map(|d| if d == 0.0 { f64::MAX.sqrt() } else { 1.0 / d })
    }

    pub fn at(&self, distance: f64) -> Vec3 {
        self.origin + self.direction * distance
    }
}

/// An axis-aligned box.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Aabb {
    pub min: Vec3,
    pub max: Vec3,
}

impl Aabb {
    /// Contains nothing; the neutral element of [`union`](Aabb::union).
    pub const EMPTY: Aabb = Aabb {
        min: vec3(f64::INFINITY, f64::INFINITY, f64::INFINITY),
        max: vec3(f64::NEG_INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY),
    };

    pub fn union(self, other: Aabb) -> Aabb {
        Aabb {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    pub fn including(self, point: Vec3) -> Aabb {
        Aabb {
            min: self.min.min(point),
            max: self.max.max(point),
        }
    }

    pub fn center(&self) -> Vec3 {
        (self.min + self.max) * 0.5
    }

    /// Half of the surface: the chance that a random ray meets the box is proportional to it.
    pub fn half_area(&self) -> f64 {
        let d = (self.max - self.min).max(Vec3::ZERO);
        d.x * d.y + d.y * d.z + d.z * d.x
    }

    /// Where a ray enters the box (0 if it starts inside), if it does so before `nearest`. `inverse` is the
    /// ray's [`Ray::inverse`], which the caller computes once for many boxes.
    pub fn entry(&self, origin: Vec3, inverse: Vec3, nearest: f64) -> Option<f64> {
        let a = (self.min - origin) * inverse;
        let b = (self.max - origin) * inverse;
        let (enter, leave) = (a.min(b).largest(), a.max(b).smallest());
        let enter = if enter > 0.0 { enter } else { 0.0 };
        (enter <= leave && enter < nearest).then_some(enter)
    }
}

/// What a ray meets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    pub distance: f64,
    /// Of the true surface; on either side of it.
    pub face: Vec3,
    /// Of the surface that the triangles stand for; equal to `face` on everything that is not smooth.
    pub normal: Vec3,
    pub material: u32,
}

/// A sphere or a triangle.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Shape {
    Sphere {
        center: Vec3,
        radius: f64,
        material: u32,
    },
    /// Corners are indices into the scene's [`Vertex`] list, which neighbouring triangles share.
    Triangle { corners: [u32; 3], material: u32 },
}

/// A corner of triangles. Without a normal the triangles round it look flat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Vertex {
    pub position: Vec3,
    pub normal: Option<Vec3>,
}

impl Shape {
    pub fn bounds(&self, vertices: &[Vertex]) -> Aabb {
        match *self {
            Shape::Sphere { center, radius, .. } => {
                let r = vec3(radius, radius, radius);
                Aabb {
                    min: center - r,
                    max: center + r,
                }
            }
            Shape::Triangle { corners, .. } => {
                corners.iter().fold(Aabb::EMPTY, |bounds, &corner| {
                    bounds.including(vertices[corner as usize].position)
                })
            }
        }
    }

    /// The first point of the shape on the ray, if there is one before `nearest`.
    pub fn hit(&self, vertices: &[Vertex], ray: &Ray, nearest: f64) -> Option<Hit> {
        match *self {
            Shape::Sphere {
                center,
                radius,
                material,
            } => {
                let distance = sphere_distance(center, radius, ray).filter(|&t| t < nearest)?;
                let normal = (ray.at(distance) - center) * (1.0 / radius);
                Some(Hit {
                    distance,
                    face: normal,
                    normal,
                    material,
                })
            }
            Shape::Triangle { corners, material } => {
                let [a, b, c] = corners.map(|corner| &vertices[corner as usize]);
                let (ab, ac) = (b.position - a.position, c.position - a.position);
                let (distance, v, w) =
                    triangle_distance(a.position, ab, ac, ray).filter(|&(t, ..)| t < nearest)?;
                let face = ab.cross(ac).normalized();
                let normal = match (a.normal, b.normal, c.normal) {
                    (Some(na), Some(nb), Some(nc)) => {
                        (na * (1.0 - v - w) + nb * v + nc * w).normalized()
                    }
                    _ => face,
                };
                Some(Hit {
                    distance,
                    face,
                    normal,
                    material,
                })
            }
        }
    }
}

fn sphere_distance(center: Vec3, radius: f64, ray: &Ray) -> Option<f64> {
    let to_center = center - ray.origin;
    let along = to_center.dot(ray.direction);
    let aside = to_center - ray.direction * along;
    let square = radius * radius - aside.dot(aside);
    if square < 0.0 {
        return None;
    }
    let half_chord = square.sqrt();
    let (near, far) = (along - half_chord, along + half_chord);
    if near > 0.0 {
        Some(near)
    } else {
        (far > 0.0).then_some(far)
    }
}

/// Distance and the weights of the second and third corner (Möller and Trumbore, 1997).
fn triangle_distance(a: Vec3, ab: Vec3, ac: Vec3, ray: &Ray) -> Option<(f64, f64, f64)> {
    let p = ray.direction.cross(ac);
    let determinant = ab.dot(p);
    if determinant == 0.0 {
        return None;
    }
    let inverse = 1.0 / determinant;
    let from_a = ray.origin - a;
    let v = from_a.dot(p) * inverse;
    if !(0.0..=1.0).contains(&v) {
        return None;
    }
    let q = from_a.cross(ab);
    let w = ray.direction.dot(q) * inverse;
    if w < 0.0 || v + w > 1.0 {
        return None;
    }
    let distance = ac.dot(q) * inverse;
    (distance > 0.0).then_some((distance, v, w))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORWARD: Ray = Ray {
        origin: vec3(0.0, 0.0, -5.0),
        direction: vec3(0.0, 0.0, 1.0),
    };

    #[test]
    fn a_ray_meets_the_near_side_of_a_sphere() {
        let ball = Shape::Sphere {
            center: Vec3::ZERO,
            radius: 2.0,
            material: 7,
        };
        let hit = ball
            .hit(&[], &FORWARD, f64::INFINITY)
            .expect("straight ahead");
        assert_eq!(
            (hit.distance, hit.normal, hit.material),
            (3.0, vec3(0.0, 0.0, -1.0), 7)
        );
        assert_eq!(
            ball.hit(&[], &FORWARD, 2.5),
            None,
            "something else is nearer"
        );
    }

    #[test]
    fn a_ray_meets_a_triangle_inside_its_edges_only() {
        let corner = |x, y| Vertex {
            position: vec3(x, y, 0.0),
            normal: None,
        };
        let vertices = [corner(-1.0, -1.0), corner(1.0, -1.0), corner(-1.0, 1.0)];
        let triangle = Shape::Triangle {
            corners: [0, 1, 2],
            material: 0,
        };
        let hit = |x, y| {
            let ray = Ray {
                origin: vec3(x, y, -5.0),
                ..FORWARD
            };
            triangle
                .hit(&vertices, &ray, f64::INFINITY)
                .map(|hit| hit.distance)
        };
        assert_eq!(hit(-0.5, -0.5), Some(5.0));
        assert_eq!(hit(0.5, 0.5), None);
    }
}
