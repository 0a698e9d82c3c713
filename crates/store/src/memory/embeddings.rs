//! The index of the lines of the memory by meaning: an embedding of each, as a model computed it. It stands beside the memory, and can be
//! removed at any time. Only a search by meaning reads it.

use super::search::MemoryMatch;
use anyhow::{Context, Result};
use nanobot_os::durable_file;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The version of the file format.
const FORMAT_VERSION: u64 = 1;
/// The largest component of a stored embedding.
const MAX_COMPONENT: f32 = 127.0;

/// The embeddings of lines.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbeddingIndex {
    v: u64,
    /// The provider and the model that computed them.
    model: String,
    /// For each text the direction of its embedding, in whole numbers up to [`MAX_COMPONENT`].
    lines: BTreeMap<String, Vec<i8>>,
}

impl EmbeddingIndex {
    /// Loads the index at `path`; an empty one if it is missing, damaged or of another `model`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(path: &Path, model: &str) -> Result<Self> {
        let bytes = durable_file::read(path)?.unwrap_or_default();
        let stored: Option<Self> = serde_json::from_slice(&bytes).ok();
        let is_current = |index: &Self| index.v == FORMAT_VERSION && index.model == model;
        Ok(stored.filter(is_current).unwrap_or_else(|| Self {
            v: FORMAT_VERSION,
            model: model.to_owned(),
            lines: BTreeMap::new(),
        }))
    }

    /// Writes the index.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let bytes = serde_json::to_vec(self).context("serialize the embeddings")?;
        durable_file::replace(path, &bytes)
    }

    /// Drops what is no longer among `lines`, and returns their texts that have no embedding yet. True if anything was dropped.
    pub fn retain(&mut self, lines: &[MemoryMatch]) -> (Vec<String>, bool) {
        let count = self.lines.len();
        let texts: BTreeSet<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        self.lines.retain(|text, _| texts.contains(text.as_str()));
        let is_missing = |line: &&MemoryMatch| !self.lines.contains_key(&line.text);
        let mut missing: Vec<String> =
            lines.iter().filter(is_missing).map(|line| line.text.clone()).collect();
        missing.sort();
        missing.dedup();
        (missing, self.lines.len() < count)
    }

    /// Adds the embedding of `text`.
    pub fn insert(&mut self, text: String, embedding: &[f32]) {
        self.lines.insert(text, quantize(embedding));
    }

    /// Returns the `count` lines that are closest to `embedding`, the closest first.
    pub fn rank(&self, lines: &[MemoryMatch], embedding: &[f32], count: usize) -> Vec<MemoryMatch> {
        let query = quantize(embedding);
        let ranked = lines.iter().filter_map(|line| {
            let score = similarity(&query, self.lines.get(&line.text)?);
            Some(MemoryMatch { score: Some(score), ..line.clone() })
        });
        let mut ranked: Vec<MemoryMatch> = ranked.collect();
        ranked.sort_by(|one, other| {
            let [one, other] = [one, other].map(|line| line.score.unwrap_or_default());
            other.total_cmp(&one)
        });
        ranked.truncate(count);
        ranked
    }
}

/// Scales an embedding so that its largest component is [`MAX_COMPONENT`]: only its direction counts.
fn quantize(embedding: &[f32]) -> Vec<i8> {
    let largest = embedding.iter().fold(0.0_f32, |largest, component| largest.max(component.abs()));
    let scale = if largest > 0.0 { MAX_COMPONENT / largest } else { 0.0 };
    embedding.iter().map(|component| (component * scale).round() as i8).collect()
}

/// The cosine of the angle between two embeddings; 0 if they cannot be compared.
fn similarity(one: &[i8], other: &[i8]) -> f32 {
    if one.len() != other.len() {
        return 0.0;
    }
    let product = |one: &[i8], other: &[i8]| -> f32 {
        one.iter().zip(other).map(|(one, other)| f32::from(*one) * f32::from(*other)).sum()
    };
    let lengths = (product(one, one) * product(other, other)).sqrt();
    if lengths > 0.0 { product(one, other) / lengths } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::{EmbeddingIndex, MemoryMatch};
    use std::path::PathBuf;

    fn line(text: &str) -> MemoryMatch {
        MemoryMatch { path: PathBuf::from("m"), line: 1, text: text.to_owned(), score: None }
    }

    #[test]
    fn the_closest_lines_come_first() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("index");
        let mut index = EmbeddingIndex::load(&path, "a").unwrap();
        let lines = [line("tea"), line("coffee"), line("car")];
        let (missing, is_changed) = index.retain(&lines);
        assert_eq!(
            (missing, is_changed),
            (vec!["car".into(), "coffee".into(), "tea".into()], false)
        );
        for (text, embedding) in [("tea", [1.0, 0.1]), ("coffee", [0.8, 0.4]), ("car", [-0.2, 1.0])]
        {
            index.insert(text.to_owned(), &embedding);
        }
        let rank = |index: &EmbeddingIndex, embedding: &[f32]| -> Vec<String> {
            let ranked = index.rank(&lines, embedding, 2);
            ranked.into_iter().map(|ranked| ranked.text).collect()
        };
        assert_eq!(rank(&index, &[1.0, 0.0]), ["tea", "coffee"]);
        assert_eq!(rank(&index, &[0.0, 0.001]), ["car", "coffee"]);
        assert!(index.rank(&lines, &[1.0], 3).iter().all(|ranked| ranked.score == Some(0.0)));
        index.save(&path).unwrap();
        assert_eq!(EmbeddingIndex::load(&path, "a").unwrap(), index);
        // Another model, a damaged file, and lines that are gone.
        assert_eq!(EmbeddingIndex::load(&path, "b").unwrap().retain(&lines).0.len(), 3);
        assert_eq!(index.retain(&lines[..1]), (vec![], true));
        std::fs::write(&path, "{").unwrap();
        assert_eq!(EmbeddingIndex::load(&path, "a").unwrap().retain(&lines).0.len(), 3);
    }
}
