//! An index of texts by meaning: an embedding of each, as a model computed it. It stands beside the memory or the sessions, and can be
//! removed at any time. Only a search by meaning reads it.

use anyhow::{Context, Result};
use nanobot_os::durable_file;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The name of the file, beside what it is an index of.
pub const FILE_NAME: &str = ".embeddings.json";
/// The version of the file format.
const FORMAT_VERSION: u64 = 1;
/// The largest component of a stored embedding.
const MAX_COMPONENT: f32 = 127.0;

/// The embeddings of texts.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbeddingIndex {
    v: u64,
    /// The provider and the model that computed them.
    model: String,
    /// For each text the direction of its embedding, in whole numbers up to [`MAX_COMPONENT`].
    lines: BTreeMap<String, Vec<i8>>,
}

/// A text with its place.
pub trait IndexedText {
    fn text(&self) -> &str;
}

/// A text and its similarity to the text that is searched.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked<T> {
    /// From -1 to 1.
    pub score: f32,
    pub entry: T,
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

    /// Drops what is no longer among `entries`. True if anything was dropped.
    pub fn retain<T: IndexedText>(&mut self, entries: &[T]) -> bool {
        let count = self.lines.len();
        let texts: BTreeSet<&str> = entries.iter().map(IndexedText::text).collect();
        self.lines.retain(|text, _| texts.contains(text.as_str()));
        self.lines.len() < count
    }

    /// The texts of `entries` that have no embedding yet.
    pub fn missing<T: IndexedText>(&self, entries: &[T]) -> Vec<String> {
        let texts = entries.iter().map(IndexedText::text);
        let missing: BTreeSet<&str> =
            texts.filter(|text| !self.lines.contains_key(*text)).collect();
        missing.into_iter().map(str::to_owned).collect()
    }

    /// Adds the embedding of `text`.
    pub fn insert(&mut self, text: String, embedding: &[f32]) {
        self.lines.insert(text, quantize(embedding));
    }

    /// Returns the `count` entries that are closest to `embedding`, the closest first.
    pub fn rank<T: IndexedText>(
        &self,
        entries: Vec<T>,
        embedding: &[f32],
        count: usize,
    ) -> Vec<Ranked<T>> {
        let query = quantize(embedding);
        let ranked = entries.into_iter().filter_map(|entry| {
            let score = similarity(&query, self.lines.get(entry.text())?);
            Some(Ranked { score, entry })
        });
        let mut ranked: Vec<Ranked<T>> = ranked.collect();
        ranked.sort_by(|one, other| other.score.total_cmp(&one.score));
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
    use super::{EmbeddingIndex, IndexedText};

    impl IndexedText for &str {
        fn text(&self) -> &str {
            self
        }
    }

    #[test]
    fn the_closest_lines_come_first() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("index");
        let mut index = EmbeddingIndex::load(&path, "a").unwrap();
        let lines = ["tea", "coffee", "car", "tea"];
        assert!(!index.retain(&lines));
        assert_eq!(index.missing(&lines), ["car", "coffee", "tea"]);
        for (text, embedding) in [("tea", [1.0, 0.1]), ("coffee", [0.8, 0.4]), ("car", [-0.2, 1.0])]
        {
            index.insert(text.to_owned(), &embedding);
        }
        let rank = |index: &EmbeddingIndex, embedding: &[f32]| -> Vec<&str> {
            let ranked = index.rank(lines[..3].to_vec(), embedding, 2);
            ranked.into_iter().map(|ranked| ranked.entry).collect()
        };
        assert_eq!(rank(&index, &[1.0, 0.0]), ["tea", "coffee"]);
        assert_eq!(rank(&index, &[0.0, 0.001]), ["car", "coffee"]);
        let of_other_length = index.rank(lines.to_vec(), &[1.0], 3);
        assert!(of_other_length.iter().all(|ranked| ranked.score == 0.0));
        index.save(&path).unwrap();
        assert_eq!(EmbeddingIndex::load(&path, "a").unwrap(), index);
        // Another model, a damaged file, and lines that are gone.
        assert_eq!(EmbeddingIndex::load(&path, "b").unwrap().missing(&lines).len(), 3);
        assert!(index.retain(&lines[..1]));
        assert_eq!(index.missing(&lines), ["car", "coffee"]);
        std::fs::write(&path, "{").unwrap();
        assert_eq!(EmbeddingIndex::load(&path, "a").unwrap().missing(&lines).len(), 3);
    }
}
