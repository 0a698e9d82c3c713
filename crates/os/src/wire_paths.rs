//! Paths in messages between processes of this program, and in its own files: as text if they are UTF-8, else as bytes.
//! The implementation in `serde` fails for a path that is not UTF-8.

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A path to write.
struct WrittenPath<'a>(&'a Path);

/// A path that was read.
struct ReadPath(PathBuf);

impl Serialize for WrittenPath<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => serializer.collect_seq(self.0.as_os_str().as_bytes()),
        }
    }
}

impl<'de> Deserialize<'de> for ReadPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PathVisitor).map(Self)
    }
}

struct PathVisitor;

impl<'de> Visitor<'de> for PathVisitor {
    type Value = PathBuf;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path as text or as a list of bytes")
    }

    fn visit_str<E>(self, text: &str) -> Result<PathBuf, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<PathBuf, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = sequence.next_element()? {
            bytes.push(byte);
        }
        Ok(OsString::from_vec(bytes).into())
    }
}

/// A single path, for `#[serde(with)]`.
pub mod path {
    use super::{
        Deserialize, Deserializer, Path, PathBuf, ReadPath, Serialize, Serializer, WrittenPath,
    };

    /// Writes a path.
    ///
    /// # Errors
    /// The errors of the serializer.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        WrittenPath(path).serialize(serializer)
    }

    /// Reads a path.
    ///
    /// # Errors
    /// The errors of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        ReadPath::deserialize(deserializer).map(|path| path.0)
    }
}

/// A list of paths, for `#[serde(with)]`.
pub mod list {
    use super::{Deserialize, Deserializer, PathBuf, ReadPath, Serializer, WrittenPath};

    /// Writes the paths.
    ///
    /// # Errors
    /// The errors of the serializer.
    pub fn serialize<'p, S: Serializer>(
        paths: impl IntoIterator<Item = &'p PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.into_iter().map(|path| WrittenPath(path)))
    }

    /// Reads the paths.
    ///
    /// # Errors
    /// The errors of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let paths = Vec::<ReadPath>::deserialize(deserializer)?;
        Ok(paths.into_iter().map(|path| path.0).collect())
    }
}

/// A list of paths that is computed when it is needed, for `#[serde(with)]`.
pub mod deferred {
    use super::{Deserializer, PathBuf, Serializer, list};
    use crate::deferred::Deferred;

    /// Computes the paths, if that was not done yet, and writes them.
    ///
    /// # Errors
    /// The errors of the serializer.
    pub fn serialize<S: Serializer>(
        deferred: &Deferred<Vec<PathBuf>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        list::serialize(deferred.iter(), serializer)
    }

    /// Reads the paths.
    ///
    /// # Errors
    /// The errors of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Deferred<Vec<PathBuf>>, D::Error> {
        list::deserialize(deserializer).map(Deferred::from)
    }
}

/// A path that may be missing, for `#[serde(with)]`.
pub mod optional {
    use super::{Deserializer, PathBuf, Serializer, list};

    /// Writes the path.
    ///
    /// # Errors
    /// The errors of the serializer.
    pub fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        list::serialize(path, serializer)
    }

    /// Reads the path.
    ///
    /// # Errors
    /// The errors of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        Ok(list::deserialize(deserializer)?.pop())
    }
}

/// A map from paths to paths, for `#[serde(with)]`.
pub mod map {
    use super::{Deserialize, Deserializer, PathBuf, ReadPath, Serializer, WrittenPath};
    use std::collections::BTreeMap;

    /// Writes the pairs.
    ///
    /// # Errors
    /// The errors of the serializer.
    pub fn serialize<S: Serializer>(
        paths: &BTreeMap<PathBuf, PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer
            .collect_seq(paths.iter().map(|(key, path)| (WrittenPath(key), WrittenPath(path))))
    }

    /// Reads the pairs.
    ///
    /// # Errors
    /// The errors of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<PathBuf, PathBuf>, D::Error> {
        let pairs = Vec::<(ReadPath, ReadPath)>::deserialize(deserializer)?;
        Ok(pairs.into_iter().map(|(key, path)| (key.0, path.0)).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use std::collections::BTreeMap;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Paths {
        #[serde(with = "super::path")]
        one: PathBuf,
        #[serde(with = "super::list")]
        many: Vec<PathBuf>,
        #[serde(with = "super::optional")]
        none: Option<PathBuf>,
        #[serde(with = "super::map")]
        pairs: BTreeMap<PathBuf, PathBuf>,
    }

    #[test]
    fn paths_arrive_as_they_were() {
        let odd = PathBuf::from(OsStr::from_bytes(b"/a\xff b"));
        let paths = Paths {
            one: odd.clone(),
            many: vec!["/a".into(), odd.clone()],
            none: None,
            pairs: BTreeMap::from([(odd.clone(), odd)]),
        };
        let text = serde_json::to_string(&paths).unwrap();
        assert!(text.contains("\"/a\""), "{text}");
        assert_eq!(serde_json::from_str::<Paths>(&text).unwrap(), paths);
    }
}
