//! A bounding volume hierarchy: which shapes can a ray meet, without asking all of them.
//!
//! Knows boxes only. Built top-down with the surface area heuristic over a few bins (Wald, "On fast construction of
//! SAH-based bounding volume hierarchies", 2007).

use serde::{Deserialize, Serialize};

use crate::geometry::{Aabb, Ray};

/// So few shapes are not worth a further split.
const LEAF: usize = 2;
/// Places tried for a split along an axis.
const BINS: usize = 12;
/// From this depth on a node is split in equal halves. That bounds the depth of any tree by `SAH_DEPTH + 32` (there
/// are fewer than 2^32 shapes), and so the stack of a traversal.
const SAH_DEPTH: usize = 32;
const STACK: usize = SAH_DEPTH + 32;

#[derive(Debug, Serialize, Deserialize)]
pub struct Bvh {
    nodes: Vec<Node>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Node {
    bounds: Aabb,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Kind {
    /// The left child is the next node.
    Inner {
        right: u32,
    },
    Leaf {
        first: u32,
        count: u32,
    },
}

impl Bvh {
    /// The tree over these boxes, and the order in which the caller must keep what is in them: leaves are ranges.
    pub fn build(bounds: &[Aabb]) -> (Bvh, Vec<u32>) {
        assert!(bounds.len() < u32::MAX as usize, "indices are 32 bits wide");
        let mut order: Vec<u32> = (0..bounds.len() as u32).collect();
        let mut nodes = Vec::new();
        if !bounds.is_empty() {
            Builder {
                bounds,
                nodes: &mut nodes,
            }
            .build(&mut order, 0, 0);
        }
        (Bvh { nodes }, order)
    }

    /// Shows `test` the shapes whose boxes the ray meets before `nearest`, near boxes first. `test` gets a shape's
    /// index and the distance that still counts, and returns the distance that counts from now on: that of a hit,
    /// or 0 to end the search.
    pub fn visit(&self, ray: &Ray, mut nearest: f64, mut test: impl FnMut(usize, f64) -> f64) {
        let inverse = ray.inverse();
        let entry = |node: u32, nearest| {
            self.nodes[node as usize]
                .bounds
                .entry(ray.origin, inverse, nearest)
        };
        let mut stack = [(0, 0.0); STACK];
        let mut waiting = 0;
        let mut next = (!self.nodes.is_empty())
            .then_some(0)
            .filter(|&root| entry(root, nearest).is_some());
        while let Some(node) = next.take() {
            match self.nodes[node as usize].kind {
                Kind::Leaf { first, count } => {
                    for shape in first..first + count {
                        nearest = test(shape as usize, nearest);
                    }
                }
                Kind::Inner { right } => {
                    let left = node + 1;
                    next = match (entry(left, nearest), entry(right, nearest)) {
                        (Some(l), Some(r)) => {
                            let (near, far) = if l <= r {
                                (left, (right, r))
                            } else {
                                (right, (left, l))
                            };
                            stack[waiting] = far;
                            waiting += 1;
                            Some(near)
                        }
                        (Some(_), None) => Some(left),
                        (None, Some(_)) => Some(right),
                        (None, None) => None,
                    };
                }
            }
            while next.is_none() && waiting > 0 {
                waiting -= 1;
                let (node, distance) = stack[waiting];
                next = (distance < nearest).then_some(node);
            }
        }
    }
}

struct Builder<'a> {
    bounds: &'a [Aabb],
    nodes: &'a mut Vec<Node>,
}

impl Builder<'_> {
    /// Appends the tree over `items`, which stand at `first` in the final order.
    fn build(&mut self, items: &mut [u32], first: usize, depth: usize) {
        let bounds = self.union(items);
        let node = self.nodes.len();
        self.nodes.push(Node {
            bounds,
            kind: Kind::Leaf {
                first: first as u32,
                count: items.len() as u32,
            },
        });
        if items.len() <= LEAF {
            return;
        }
        let by_area = if depth < SAH_DEPTH {
            self.split_by_area(items)
        } else {
            None
        };
        let middle = by_area.unwrap_or_else(|| self.split_in_half(items));
        let (left, right) = items.split_at_mut(middle);
        self.build(left, first, depth + 1);
        self.nodes[node].kind = Kind::Inner {
            right: self.nodes.len() as u32,
        };
        self.build(right, first + middle, depth + 1);
    }

    fn bounds_of(&self, item: u32) -> Aabb {
        self.bounds[item as usize]
    }

    fn union(&self, items: &[u32]) -> Aabb {
        items
            .iter()
            .fold(Aabb::EMPTY, |all, &item| all.union(self.bounds_of(item)))
    }

    fn centers(&self, items: &[u32]) -> Aabb {
        items.iter().fold(Aabb::EMPTY, |all, &item| {
            all.including(self.bounds_of(item).center())
        })
    }

    /// Partitions `items` where a random ray has the least to do; `None` if all centers coincide.
    fn split_by_area(&self, items: &mut [u32]) -> Option<usize> {
        let centers = self.centers(items);
        let mut best: Option<(f64, usize, f64)> = None;
        for axis in 0..3 {
            let (low, width) = (centers.min[axis], centers.max[axis] - centers.min[axis]);
            if width <= 0.0 {
                continue;
            }
            let bin = |item: u32| {
                let part = (self.bounds_of(item).center()[axis] - low) / width;
                ((part * BINS as f64) as usize).min(BINS - 1)
            };
            let mut bins = [(Aabb::EMPTY, 0); BINS];
            for &item in &*items {
                let (bounds, count) = &mut bins[bin(item)];
                *bounds = bounds.union(self.bounds_of(item));
                *count += 1;
            }
            let cost = |bins: &[(Aabb, usize)]| {
                let all = bins
                    .iter()
                    .fold((Aabb::EMPTY, 0), |a, b| (a.0.union(b.0), a.1 + b.1));
                all.0.half_area() * all.1 as f64
            };
            for split in 1..BINS {
                let cost = cost(&bins[..split]) + cost(&bins[split..]);
                if best.is_none_or(|(least, ..)| cost < least) {
                    best = Some((cost, axis, low + width * split as f64 / BINS as f64));
                }
            }
        }
        let (_, axis, border) = best?;
        let middle = partition(items, |item| self.bounds_of(item).center()[axis] < border);
        (0 < middle && middle < items.len()).then_some(middle)
    }

    fn split_in_half(&self, items: &mut [u32]) -> usize {
        let centers = self.centers(items);
        let size = centers.max - centers.min;
        let axis = (0..3).fold(0, |widest, axis| {
            if size[axis] > size[widest] {
                axis
            } else {
                widest
            }
        });
        let center = |item: u32| self.bounds_of(item).center()[axis];
        let middle = items.len() / 2;
        items.select_nth_unstable_by(middle, |&a, &b| {
            center(a).total_cmp(&center(b)).then(a.cmp(&b))
        });
        middle
    }
}

/// Moves the items for which `left` holds to the front; returns how many they are.
fn partition(items: &mut [u32], left: impl Fn(u32) -> bool) -> usize {
    let mut count = 0;
    for i in 0..items.len() {
        if left(items[i]) {
            items.swap(i, count);
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{Hit, Shape};
    use crate::maths::{Noise, Vec3, vec3};

    fn random_point(noise: &mut Noise) -> Vec3 {
        vec3(noise.unit(), noise.unit(), noise.unit()) * 2.0 - Vec3::ONE
    }

    fn nearer(ray: &Ray, shape: &Shape, best: &mut Option<Hit>) -> f64 {
        let nearest = best.map_or(f64::INFINITY, |hit| hit.distance);
        if let Some(hit) = shape.hit(&[], ray, nearest) {
            *best = Some(hit);
        }
        best.map_or(f64::INFINITY, |hit| hit.distance)
    }

    fn finds_what_brute_force_finds(spheres: Vec<Shape>) {
        let bounds: Vec<Aabb> = spheres.iter().map(|sphere| sphere.bounds(&[])).collect();
        let (bvh, order) = Bvh::build(&bounds);
        let mut noise = Noise::at(1.0, 1.0);
        for _ in 0..2000 {
            let origin = random_point(&mut noise) * 2.0;
            let ray = Ray {
                origin,
                direction: (random_point(&mut noise) - origin).normalized(),
            };
            let mut slow = None;
            for sphere in &spheres {
                nearer(&ray, sphere, &mut slow);
            }
            let mut fast = None;
            bvh.visit(&ray, f64::INFINITY, |i, _| {
                nearer(&ray, &spheres[order[i] as usize], &mut fast)
            });
            assert_eq!(slow, fast, "{ray:?}");
        }
    }

    fn sphere(center: Vec3, radius: f64) -> Shape {
        Shape::Sphere {
            center,
            radius,
            material: 0,
        }
    }

    #[test]
    fn random_spheres() {
        let mut noise = Noise::at(0.0, 0.0);
        let spheres = (0..500)
            .map(|_| sphere(random_point(&mut noise), 0.1 * noise.unit()))
            .collect();
        finds_what_brute_force_finds(spheres);
    }

    #[test]
    fn concentric_spheres_cannot_be_told_apart_by_their_centers() {
        finds_what_brute_force_finds(
            (1..50)
                .map(|i| sphere(Vec3::ZERO, f64::from(i) / 50.0))
                .collect(),
        );
    }

    #[test]
    fn ever_smaller_spheres_stay_within_the_stack() {
        let spheres = (0..300)
            .map(|i| sphere(vec3(0.9f64.powi(i), 0.0, 0.0), 1e-3))
            .collect();
        finds_what_brute_force_finds(spheres);
    }

    #[test]
    fn an_empty_scene_has_no_hits() {
        finds_what_brute_force_finds(Vec::new());
    }
}
