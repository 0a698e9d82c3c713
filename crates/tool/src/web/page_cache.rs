//! The pages that a run has fetched. Once the number of requests is limited, a repeated address is answered from here,
//! without a request.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use url::Url;

/// Maximum size of all pages in bytes. Beyond it the oldest ones are dropped.
const MAX_CACHE_BYTES: usize = 16 << 20;

/// The content fetched from an address.
pub(crate) struct FetchedContent {
    /// The address after all redirects.
    pub(crate) url: Url,
    /// The server's `content-type`, in lower case.
    pub(crate) content_type: String,
    pub(crate) bytes: Vec<u8>,
    /// True if the content was longer and has been cut.
    pub(crate) is_truncated: bool,
    /// True if untrusted content cannot have chosen any part of the address that was requested.
    pub(crate) is_safe_address: bool,
    /// A remark for the model on who has read it.
    pub(crate) note: Option<String>,
}

/// The pages of a run by the addresses that were requested, the oldest first.
#[derive(Default)]
pub struct PageCache(Mutex<VecDeque<(String, Arc<FetchedContent>)>>);

impl PageCache {
    pub(super) fn find(&self, url: &Url) -> Option<Arc<FetchedContent>> {
        let key = cache_key(url);
        let pages = self.0.lock();
        let entry = pages.iter().find(|(page_key, _)| *page_key == key);
        entry.map(|(_, page)| Arc::clone(page))
    }

    pub(super) fn insert(&self, url: &Url, content: FetchedContent) -> Arc<FetchedContent> {
        let (key, content) = (cache_key(url), Arc::new(content));
        let mut pages = self.0.lock();
        pages.retain(|(page_key, _)| *page_key != key);
        pages.push_back((key, Arc::clone(&content)));
        let mut size: usize = pages.iter().map(|(_, page)| page.bytes.len()).sum();
        while size > MAX_CACHE_BYTES
            && let Some((_, oldest)) = pages.pop_front()
        {
            size -= oldest.bytes.len();
        }
        content
    }
}

/// `url` without the fragment, which is never sent.
fn cache_key(url: &Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use super::{FetchedContent, MAX_CACHE_BYTES, PageCache};
    use url::Url;

    #[test]
    fn the_oldest_pages_are_dropped() {
        let cache = PageCache::default();
        let url = |number: usize| Url::parse(&format!("http://a.example/{number}#x")).unwrap();
        let page = |number| FetchedContent {
            url: url(number),
            content_type: String::new(),
            bytes: vec![0; MAX_CACHE_BYTES / 2],
            is_truncated: false,
            is_safe_address: false,
            note: None,
        };
        for number in [0, 1, 1, 2] {
            cache.insert(&url(number), page(number));
        }
        let actual = [0, 1, 2].map(|number| cache.find(&url(number)).is_some());
        assert_eq!(actual, [false, true, true]);
    }
}
