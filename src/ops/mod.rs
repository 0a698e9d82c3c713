//! The operations of the program, one use case per file or folder. Commands, the REPL, jobs and channels call the same
//! functions here. Printing and prompting are passed in by the caller; nothing here depends on command-line types.

pub(crate) mod after_turn;
pub(crate) mod agent_turn;
pub(crate) mod connection_test;
pub(crate) mod consolidation;
pub mod context;
pub(crate) mod context_window;
pub(crate) mod default_session;
pub(crate) mod doctor;
pub(crate) mod dry_run;
pub(crate) mod git_facts;
pub(crate) mod interactive_approval;
pub(crate) mod jobs;
pub(crate) mod mcp_budget;
pub(crate) mod mcp_sandbox;
pub(crate) mod mcp_servers;
pub(crate) mod mcp_tools;
pub(crate) mod model;
pub(crate) mod permissions;
pub(crate) mod profiles;
pub(crate) mod prompt_files;
pub(crate) mod request_report;
pub(crate) mod session_library;
pub(crate) mod setup_input;
pub(crate) mod shared_state;
pub(crate) mod since;
pub(crate) mod skills;
pub(crate) mod subagent_setup;
pub(crate) mod subagents;
pub(crate) mod system_prompt;
pub(crate) mod tool_usage;
pub(crate) mod toolset;
pub mod turn_options;
pub(crate) mod turn_setup;
pub(crate) mod web_tools;
pub(crate) mod worktree;
