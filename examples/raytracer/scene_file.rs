//! Scenes from TOML files. `scenes/spheres.toml` is the reference of what can stand in one.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::camera::Camera;
use crate::geometry::Shape;
use crate::maths::{Vec3, sin_cos_turns, vec3};
use crate::mesh::Mesh;
use crate::scene::{Floor, Material, Model, Scene, Sky, Sun};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SceneFile {
    camera: CameraEntry,
    #[serde(default)]
    sky: Sky,
    #[serde(default)]
    sun: Sun,
    floor: Option<Floor>,
    #[serde(default)]
    materials: BTreeMap<String, Material>,
    #[serde(default, rename = "sphere")]
    spheres: Vec<SphereEntry>,
    #[serde(default, rename = "mesh")]
    meshes: Vec<MeshEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CameraEntry {
    position: Vec3,
    look_at: Vec3,
    #[serde(default = "default_fov")]
    fov: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SphereEntry {
    center: Vec3,
    radius: f64,
    material: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeshEntry {
    file: PathBuf,
    material: String,
    #[serde(default)]
    position: Vec3,
    #[serde(default = "default_scale")]
    scale: f64,
    /// Degrees about the vertical.
    #[serde(default)]
    turn: f64,
    #[serde(default = "default_smooth")]
    smooth: bool,
}

fn default_fov() -> f64 {
    40.0
}

fn default_scale() -> f64 {
    1.0
}

fn default_smooth() -> bool {
    true
}

/// Reads a scene. OBJ files are looked for beside the scene file.
pub fn load(path: &Path) -> Result<Scene> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the scene file {}", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    parse(&text, folder).with_context(|| format!("cannot use the scene file {}", path.display()))
}

fn parse(text: &str, folder: &Path) -> Result<Scene> {
    let file: SceneFile = toml::from_str(text)?;
    file.check()?;

    let index = |entry: &str, name: &str| -> Result<u32> {
        let position = file.materials.keys().position(|known| known == name);
        let known: Vec<&str> = file.materials.keys().map(String::as_str).collect();
        let index = position.with_context(|| {
            format!(
                "{entry}.material: there is no material `{name}`: add a table [materials.{name}]{}{}",
                if known.is_empty() { "" } else { ", or use one of: " },
                known.join(", "),
            )
        })?;
        Ok(index as u32)
    };
    let mut model = Model::default();
    for (i, sphere) in file.spheres.iter().enumerate() {
        let material = index(&format!("sphere[{i}]"), &sphere.material)?;
        model.shapes.push(Shape::Sphere {
            center: sphere.center,
            radius: sphere.radius,
            material,
        });
    }
    let mut meshes: BTreeMap<(&Path, bool), Mesh> = BTreeMap::new();
    for (i, entry) in file.meshes.iter().enumerate() {
        let material = index(&format!("mesh[{i}]"), &entry.material)?;
        // A chess set has eight pawns but one file.
        let mesh = match meshes.entry((&entry.file, entry.smooth)) {
            Entry::Occupied(loaded) => loaded.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(entry.load(folder).with_context(|| {
                format!(
                    "mesh[{i}].file: give the name of an OBJ file, seen from the scene file's folder"
                )
            })?),
        };
        let (sin, cos) = sin_cos_turns(entry.turn / 360.0);
        let turned = |p: Vec3| vec3(p.x * cos + p.z * sin, p.y, p.z * cos - p.x * sin);
        mesh.add_to(&mut model, material, |p| {
            turned(p) * entry.scale + entry.position
        });
    }
    let camera = Camera::new(file.camera.position, file.camera.look_at, file.camera.fov);
    let materials = file.materials.into_values().collect();
    Ok(Scene::new(
        camera, file.sky, file.sun, file.floor, materials, model,
    ))
}

impl MeshEntry {
    fn load(&self, folder: &Path) -> Result<Mesh> {
        let mut mesh = Mesh::load(&folder.join(&self.file))?;
        if self.smooth && !mesh.has_normals() {
            mesh.smooth();
        }
        Ok(mesh)
    }
}

impl SceneFile {
    /// What TOML's types cannot say. Every message names the key and what to write there.
    fn check(&self) -> Result<()> {
        let CameraEntry {
            position,
            look_at,
            fov,
        } = self.camera;
        let view = look_at - position;
        ensure!(
            finite(view) && (view.x != 0.0 || view.z != 0.0),
            "camera.look_at: must not be straight above or below camera.position: move either a little aside"
        );
        ensure!(
            (1.0..=170.0).contains(&fov),
            "camera.fov is {fov}: write degrees from 1 to 170"
        );
        let sun = &self.sun;
        ensure!(
            finite(sun.direction) && sun.direction != Vec3::ZERO,
            "sun.direction: write where the sun stands, for example [0.7, 0.8, 0.5]"
        );
        ensure!(
            (0.0..=1.0).contains(&sun.size),
            "sun.size is {}: write a number from 0 to 1",
            sun.size
        );
        not_negative("sun.color", sun.color)?;
        not_negative("sky.horizon", self.sky.horizon)?;
        not_negative("sky.zenith", self.sky.zenith)?;
        if let Some(floor) = &self.floor {
            positive("floor.square", floor.square)?;
            ensure!(floor.height.is_finite(), "floor.height: write a number");
            part("floor.reflect", floor.reflect)?;
            floor
                .colors
                .iter()
                .try_for_each(|&color| not_negative("floor.colors", color))?;
        }
        for (name, material) in &self.materials {
            not_negative(&format!("materials.{name}.color"), material.color)?;
            part(&format!("materials.{name}.reflect"), material.reflect)?;
        }
        for (i, sphere) in self.spheres.iter().enumerate() {
            positive(&format!("sphere[{i}].radius"), sphere.radius)?;
            ensure!(
                finite(sphere.center),
                "sphere[{i}].center: write three numbers"
            );
        }
        for (i, mesh) in self.meshes.iter().enumerate() {
            positive(&format!("mesh[{i}].scale"), mesh.scale)?;
            ensure!(
                finite(mesh.position),
                "mesh[{i}].position: write three numbers"
            );
            ensure!(mesh.turn.is_finite(), "mesh[{i}].turn: write degrees");
        }
        Ok(())
    }
}

fn finite(v: Vec3) -> bool {
    v.x.is_finite() && v.y.is_finite() && v.z.is_finite()
}

fn not_negative(key: &str, color: Vec3) -> Result<()> {
    let fine = finite(color) && color.min(Vec3::ZERO) == Vec3::ZERO;
    ensure!(
        fine,
        "{key}: write red, green and blue as numbers from 0 up, for example [0.8, 0.5, 0.2]"
    );
    Ok(())
}

fn positive(key: &str, value: f64) -> Result<()> {
    ensure!(
        value > 0.0 && value.is_finite(),
        "{key} is {value}: write a number above 0"
    );
    Ok(())
}

fn part(key: &str, value: f64) -> Result<()> {
    ensure!(
        (0.0..=1.0).contains(&value),
        "{key} is {value}: write a number from 0 to 1"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAMERA: &str = "camera = { position = [0, 1, 5], look_at = [0, 1, 0] }\n";
    const RED: &str = "[materials.red]\ncolor = [1, 0, 0]\n";

    fn error(text: &str) -> String {
        let error = parse(&format!("{CAMERA}{text}"), Path::new("")).expect_err("a wrong scene");
        format!("{error:#}")
    }

    #[test]
    fn the_scenes_in_the_repository_are_right() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("raytracer/scenes");
        for name in ["spheres.toml", "chess.toml"] {
            load(&folder.join(name)).expect(name);
        }
    }

    #[test]
    fn a_camera_is_enough() {
        parse(CAMERA, Path::new("")).expect("an empty scene");
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = error("[sun]\ncolour = [1, 1, 1]\n");
        assert!(
            error.contains("line 3") && error.contains("colour") && error.contains("`color`"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_key_is_named() {
        let error = error(&format!(
            "{RED}[[sphere]]\ncenter = [0, 0, 0]\nmaterial = \"red\"\n"
        ));
        assert!(error.contains("radius"), "{error}");
    }

    #[test]
    fn an_unknown_material_is_named_with_the_known_ones() {
        let text = "[[sphere]]\ncenter = [0, 0, 0]\nradius = 1\nmaterial = \"rde\"\n";
        let error = error(&format!("{RED}{text}"));
        assert!(
            error.contains("sphere[0].material") && error.contains("rde") && error.contains("red"),
            "{error}"
        );
    }

    #[test]
    fn numbers_out_of_range_say_what_is_in_range() {
        let text = "[[sphere]]\ncenter = [0, 0, 0]\nradius = -1\nmaterial = \"red\"\n";
        let error = error(&format!("{RED}{text}"));
        assert_eq!(error, "sphere[0].radius is -1: write a number above 0");
    }

    #[test]
    fn a_missing_mesh_says_where_it_was_looked_for() {
        let text = "[[mesh]]\nfile = \"gone.obj\"\nmaterial = \"red\"\n";
        let error = error(&format!("{RED}{text}"));
        assert!(
            error.contains("mesh[0].file") && error.contains("gone.obj"),
            "{error}"
        );
    }

    #[test]
    fn an_obj_file_without_faces_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("empty.obj"), "v 0 0 0\n").expect("a file in it");
        let text = format!("{CAMERA}{RED}[[mesh]]\nfile = \"empty.obj\"\nmaterial = \"red\"\n");
        let error = format!(
            "{:#}",
            parse(&text, folder.path()).expect_err("nothing to see")
        );
        assert!(error.contains("no faces"), "{error}");
    }
}
