//! Triangle meshes: read from OBJ files, smoothed, added to a model.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::geometry::{Shape, Vertex};
use crate::maths::{Vec3, vec3};
use crate::scene::Model;

#[derive(Debug, Default)]
pub struct Mesh {
    pub positions: Vec<Vec3>,
    pub triangles: Vec<[u32; 3]>,
    /// One for each position, or empty: then the triangles are flat.
    normals: Vec<Option<Vec3>>,
}

impl Mesh {
    /// Every object of an OBJ file, in one mesh. Its materials are not read: a scene file names its own.
    pub fn load(path: &Path) -> Result<Mesh> {
        let options = tobj::LoadOptions {
            triangulate: true,
            single_index: true,
            ..Default::default()
        };
        let (objects, _materials) = tobj::load_obj(path, &options)
            .with_context(|| format!("cannot read the OBJ file {}", path.display()))?;
        let mut mesh = Mesh::default();
        for tobj::Model { mesh: object, .. } in objects {
            let first = mesh.positions.len() as u32;
            mesh.positions.extend(
                object
                    .positions
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&[x, y, z]| point(x, y, z)),
            );
            mesh.normals.extend(
                object
                    .normals
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&[x, y, z]| direction(point(x, y, z))),
            );
            mesh.triangles.extend(
                object
                    .indices
                    .as_chunks()
                    .0
                    .iter()
                    .map(|corners| corners.map(|i| first + i)),
            );
        }
        ensure!(
            !mesh.triangles.is_empty(),
            "there are no faces in the OBJ file {}",
            path.display()
        );
        if mesh.normals.len() != mesh.positions.len() {
            mesh.normals.clear();
        }
        Ok(mesh)
    }

    pub fn has_normals(&self) -> bool {
        !self.normals.is_empty()
    }

    /// Gives every vertex the mean normal of the triangles it belongs to, the larger ones counting more.
    pub fn smooth(&mut self) {
        let mut sums = vec![Vec3::ZERO; self.positions.len()];
        for corners in &self.triangles {
            let [a, b, c] = corners.map(|i| self.positions[i as usize]);
            for &corner in corners {
                // The cross product's length is twice the area.
                sums[corner as usize] += (b - a).cross(c - a);
            }
        }
        self.normals = sums.into_iter().map(direction).collect();
    }

    /// Adds the triangles, moved by `place`, which may turn, shift and scale (all ways alike).
    pub fn add_to(&self, model: &mut Model, material: u32, place: impl Fn(Vec3) -> Vec3) {
        let first = model.vertices.len() as u32;
        let origin = place(Vec3::ZERO);
        for (i, &position) in self.positions.iter().enumerate() {
            let normal = self.normals.get(i).copied().flatten();
            let normal = normal.and_then(|normal| direction(place(normal) - origin));
            model.vertices.push(Vertex {
                position: place(position),
                normal,
            });
        }
        for corners in &self.triangles {
            model.shapes.push(Shape::Triangle {
                corners: corners.map(|i| first + i),
                material,
            });
        }
    }
}

fn point(x: f32, y: f32, z: f32) -> Vec3 {
    vec3(x.into(), y.into(), z.into())
}

/// The vector with length 1; `None` if it has no direction.
fn direction(v: Vec3) -> Option<Vec3> {
    let length = v.length();
    (length > 0.0 && length.is_finite()).then(|| v * (1.0 / length))
}
