//! The entry of a message line that tells later turns where its images are from. The content of the line has a
//! placeholder for each.

use nanobot_base::message::{ImageSource, MessagePart};
use serde_json::{Value, json};

/// The sources of the images in `parts` that are files.
pub(super) fn format(parts: &[MessagePart]) -> Vec<Value> {
    let each = parts.iter().enumerate();
    let sources = each.filter_map(|(index, part)| match part {
        MessagePart::Image(image) => {
            let ImageSource { path, digest } = image.source.as_ref()?;
            Some(json!({ "part": index, "path": path, "digest": digest }))
        }
        _ => None,
    });
    sources.collect()
}

/// Reads what [`format`] wrote. Other values are left out.
pub(super) fn read(list: &Value) -> Vec<(usize, ImageSource)> {
    let source = |entry: &Value| {
        let text = |key: &str| entry[key].as_str().map(str::to_owned);
        let source = ImageSource { path: text("path")?, digest: text("digest")? };
        Some((usize::try_from(entry["part"].as_u64()?).ok()?, source))
    };
    list.as_array().into_iter().flatten().filter_map(source).collect()
}
