//! The scenes that need no file.

use clap::ValueEnum;

use crate::camera::Camera;
use crate::geometry::Shape;
use crate::maths::{Vec3, sin_cos_turns, vec3};
use crate::mesh::Mesh;
use crate::scene::{Floor, Material, Model, Scene, Sky, Sun};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Builtin {
    /// A ball with nine balls on it, each with nine balls on it, and so on: 7381 spheres
    Flake,
    /// A torus knot of 24000 triangles between three balls
    Mesh,
}

impl Builtin {
    pub fn scene(self) -> Scene {
        match self {
            Builtin::Flake => flake(),
            Builtin::Mesh => knot(),
        }
    }
}

const FLAKE_LEVELS: u32 = 4;

fn flake() -> Scene {
    let metal = |r, g, b| Material {
        color: vec3(r, g, b),
        reflect: 0.0,
        metal: true,
    };
    let gloss = |r, g, b| Material {
        color: vec3(r, g, b),
        reflect: 0.06,
        metal: false,
    };
    // One for each level of the flake, from the trunk to the tips.
    let materials = vec![
        metal(0.95, 0.93, 0.88),
        metal(1.0, 0.66, 0.26),
        gloss(0.04, 0.20, 0.36),
        gloss(0.66, 0.10, 0.05),
        gloss(0.92, 0.76, 0.50),
    ];
    let mut model = Model::default();
    // The axis leans a little, or too many balls would stand in line.
    grow(
        &mut model.shapes,
        vec3(0.0, 1.0, 0.0),
        1.0,
        vec3(0.25, 1.0, 0.35).normalized(),
        0,
    );
    Scene::new(
        Camera::new(vec3(-3.0, 2.35, 6.6), vec3(0.0, 1.22, 0.0), 31.0),
        Sky::default(),
        Sun {
            direction: vec3(-0.55, 0.85, 0.65),
            ..Sun::default()
        },
        Some(Floor::default()),
        materials,
        model,
    )
}

/// Eric Haines' sphere flake: on a ball sit six of a third of its size round the equator and three nearer the pole.
fn grow(shapes: &mut Vec<Shape>, center: Vec3, radius: f64, axis: Vec3, level: u32) {
    shapes.push(Shape::Sphere {
        center,
        radius,
        material: level,
    });
    if level == FLAKE_LEVELS {
        return;
    }
    let (u, v) = axis.frame();
    let equator = (0..6).map(|i| (f64::from(i) / 6.0, 0.0));
    let crown = (0..3).map(|i| (f64::from(i) / 3.0 + 1.0 / 12.0, 1.0 / 6.0));
    for (longitude, latitude) in equator.chain(crown) {
        let (sin, cos) = sin_cos_turns(longitude);
        let (height, reach) = sin_cos_turns(latitude);
        let outwards = (u * cos + v * sin) * reach + axis * height;
        let small = radius / 3.0;
        grow(
            shapes,
            center + outwards * (radius + small),
            small,
            outwards,
            level + 1,
        );
    }
}

fn knot() -> Scene {
    let materials = vec![
        Material {
            color: vec3(0.62, 0.05, 0.07),
            reflect: 0.08,
            metal: false,
        },
        Material {
            color: vec3(1.0, 0.66, 0.26),
            reflect: 0.0,
            metal: true,
        },
        Material {
            color: vec3(0.94, 0.95, 0.96),
            reflect: 0.0,
            metal: true,
        },
        Material {
            color: vec3(0.05, 0.22, 0.42),
            reflect: 0.06,
            metal: false,
        },
    ];
    let mut model = Model::default();
    torus_knot(600, 20).add_to(&mut model, 0, |p| p + vec3(0.0, 1.62, 0.0));
    for (material, x, z, radius) in [
        (1, -2.3, 0.9, 0.55),
        (2, 2.5, -1.2, 0.9),
        (3, 1.75, 1.5, 0.4),
    ] {
        model.shapes.push(Shape::Sphere {
            center: vec3(x, radius, z),
            radius,
            material,
        });
    }
    Scene::new(
        Camera::new(vec3(0.9, 2.5, 7.2), vec3(0.05, 1.35, 0.0), 32.0),
        Sky::default(),
        Sun::default(),
        Some(Floor::default()),
        materials,
        model,
    )
}

/// A tube along the curve that winds three times round a torus while it goes round twice: `along` rings of `around`
/// vertices.
fn torus_knot(along: u32, around: u32) -> Mesh {
    let curve = |turns: f64| {
        let (sin2, cos2) = sin_cos_turns(2.0 * turns);
        let (sin3, cos3) = sin_cos_turns(3.0 * turns);
        let r = 1.0 + 0.45 * cos3;
        vec3(r * cos2, r * sin2, 0.55 * sin3)
    };
    let mut mesh = Mesh::default();
    for i in 0..along {
        let turns = f64::from(i) / f64::from(along);
        let tangent = (curve(turns + 1e-4) - curve(turns - 1e-4)).normalized();
        // The curve turns round the z axis and is nowhere parallel to it, so the tube closes without a twist.
        let u = vec3(0.0, 0.0, 1.0).cross(tangent).normalized();
        let v = tangent.cross(u);
        for j in 0..around {
            let (sin, cos) = sin_cos_turns(f64::from(j) / f64::from(around));
            mesh.positions
                .push(curve(turns) + (u * cos + v * sin) * 0.3);
            let (i2, j2) = ((i + 1) % along, (j + 1) % around);
            let corner = |i, j| i * around + j;
            mesh.triangles
                .push([corner(i, j), corner(i2, j), corner(i2, j2)]);
            mesh.triangles
                .push([corner(i, j), corner(i2, j2), corner(i, j2)]);
        }
    }
    mesh.smooth();
    mesh
}
