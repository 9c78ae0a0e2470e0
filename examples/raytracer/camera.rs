//! From places in the picture to rays.

use serde::{Deserialize, Serialize};

use crate::geometry::Ray;
use crate::maths::{Vec3, tan_half_degrees};

/// A pinhole camera.
#[derive(Debug, Serialize, Deserialize)]
pub struct Camera {
    position: Vec3,
    forward: Vec3,
    /// One picture height to the right, and up, at distance 1.
    right: Vec3,
    up: Vec3,
}

impl Camera {
    /// `fov` is the angle between the picture's upper and lower edge, in degrees. `target` must not be straight above
    /// or below `position`.
    pub fn new(position: Vec3, target: Vec3, fov: f64) -> Camera {
        let forward = (target - position).normalized();
        let height = 2.0 * tan_half_degrees(fov);
        let right = forward.cross(Vec3::UP).normalized();
        Camera {
            position,
            forward,
            right: right * height,
            up: right.cross(forward) * height,
        }
    }

    /// The ray through a place given in picture heights from the picture's center, to the right and up.
    pub fn ray(&self, right: f64, up: f64) -> Ray {
        let direction = (self.forward + self.right * right + self.up * up).normalized();
        Ray {
            origin: self.position,
            direction,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maths::vec3;

    #[test]
    fn the_center_looks_at_the_target_and_the_edges_span_the_angle() {
        let camera = Camera::new(vec3(0.0, 0.0, 5.0), Vec3::ZERO, 90.0);
        assert_eq!(camera.ray(0.0, 0.0).direction, vec3(0.0, 0.0, -1.0));
        let cosine = camera
            .ray(0.0, 0.5)
            .direction
            .dot(camera.ray(0.0, -0.5).direction);
        assert!(
            cosine.abs() < 1e-12,
            "a right angle, but its cosine is {cosine}"
        );
    }
}
