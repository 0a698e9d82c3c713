//! Pastes into the line that is being edited: their keys are collected, and inserted at once.
//!
//! `rustyline` would insert the text of a paste itself. Handling the keys makes it possible to show a mark for a long text.

use super::pasted::{MARK_START, SharedPastes};
use parking_lot::Mutex;
use rustyline::{
    CharSearch, Cmd, ConditionalEventHandler, Event, EventContext, KeyCode, KeyEvent, Modifiers,
    Movement, RepeatCount,
};
use std::sync::Arc;

/// The paste that is being received, shared by the handlers of all keys.
#[derive(Clone)]
pub(super) struct PasteCollector {
    /// The text so far, after the start of a paste.
    open: Arc<Mutex<Option<String>>>,
    pastes: SharedPastes,
}

impl PasteCollector {
    pub(super) fn new(pastes: SharedPastes) -> Self {
        Self { open: Arc::default(), pastes }
    }

    /// Handles `event` if it belongs to a paste.
    fn collect(&self, event: &Event) -> Option<Cmd> {
        let KeyEvent(code, modifiers) = event.get(0)?;
        let mut open = self.open.lock();
        match (code, &mut *open) {
            (KeyCode::BracketedPasteStart, _) => *open = Some(String::new()),
            (_, None) => return None,
            (KeyCode::BracketedPasteEnd, Some(text)) => {
                let text = text.replace("\r\n", "\n").replace('\r', "\n");
                *open = None;
                let folded = self.pastes.lock().fold(text);
                return Some(Cmd::Insert(1, folded));
            }
            (KeyCode::Enter, Some(text)) => text.push('\r'),
            (KeyCode::Tab, Some(text)) => text.push('\t'),
            (KeyCode::Char('J'), Some(text)) if *modifiers == Modifiers::CTRL => text.push('\n'),
            (KeyCode::Char(letter), Some(text)) if modifiers.is_empty() => text.push(*letter),
            // Other keys are control characters and escape sequences.
            (_, Some(_)) => {}
        }
        Some(Cmd::Noop)
    }
}

impl ConditionalEventHandler for PasteCollector {
    fn handle(&self, event: &Event, _: RepeatCount, _: bool, _: &EventContext) -> Option<Cmd> {
        self.collect(event)
    }
}

/// A key with a meaning of its own, outside of pastes.
pub(super) struct OutsidePaste<H> {
    pub(super) collector: PasteCollector,
    pub(super) handler: H,
}

impl<H: ConditionalEventHandler> ConditionalEventHandler for OutsidePaste<H> {
    fn handle(
        &self,
        event: &Event,
        count: RepeatCount,
        is_positive: bool,
        context: &EventContext,
    ) -> Option<Cmd> {
        let collected = self.collector.collect(event);
        collected.or_else(|| self.handler.handle(event, count, is_positive, context))
    }
}

/// The Backspace key: deletes the mark of a paste as a whole.
pub(super) struct BackspaceKey(pub(super) SharedPastes);

impl ConditionalEventHandler for BackspaceKey {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        let pastes = self.0.lock();
        pastes.mark_at_end(&context.line()[..context.pos()])?;
        // `rustyline` would replace the count of another movement by its own, which is 1.
        let start = CharSearch::Backward(MARK_START);
        Some(Cmd::Kill(Movement::ViCharSearch(1, start)))
    }
}
