//! The promises and limits of SECURITY.md: each of them names the stories that fail if it does not hold, or the reason that
//! it has none.

use crate::sandbox::print_count;
use std::path::Path;

/// A sentence, by a part of it, and its stories: functions of these tests or of the sources.
type TestedPromise = (&'static str, &'static [&'static str]);

const GUARANTEES: &[TestedPromise] = &[
    (
        "runs a command in a kernel sandbox of three layers",
        &["destructive_commands_destroy_only_writable_files"],
    ),
    (
        "Its own mount, process, IPC and network namespaces",
        &["a_command_sees_nothing_but_what_is_granted"],
    ),
    ("Landlock and seccomp filters inside them", &["escape_attempts_fail"]),
    (
        "It writes to private temporary directories",
        &[
            "no_process_outlives_a_command",
            "a_swarm_of_processes_ends_with_its_command",
            "a_command_ends_when_nanobot_is_killed",
            "commands_can_detect_the_sandbox_and_leave_no_files",
            "the_first_process_is_not_traced",
            "a_command_in_the_background_is_not_traced",
        ],
    ),
    (
        "It opens no sockets but local ones",
        &[
            "sockets_cannot_be_opened",
            "each_run_has_a_network_of_its_own",
            "servers_and_their_tests_work_on_loopback",
        ],
    ),
    (
        "a proxy outside of its sandbox carries TLS",
        &[
            "nothing_but_named_hosts_is_reached",
            "package_managers_and_git_reach_a_named_host",
            "at_the_ports_of_the_web_only_tls_and_plain_http_are_carried",
            "a_named_loopback_port_is_forwarded_and_hosts_are_told",
        ],
    ),
    (
        "With `--write` it can also change the working directory",
        &[
            "startup_files_are_never_changed",
            "startup_files_of_a_granted_home_are_never_changed",
            "changed_protected_files_are_restored_and_reported",
            "git_runs_nothing_that_a_command_left_behind",
            "no_instruction_file_or_job_can_be_created_by_a_command",
        ],
    ),
    (
        "Of `.git/config` it changes a copy",
        &[
            "commands_configure_branches_in_a_repository_that_was_there",
            "a_config_is_unchanged_while_the_command_runs",
        ],
    ),
    (
        "In a part of a repository it reads the",
        &[
            "git_works_in_every_layout",
            "a_run_in_a_part_of_a_working_tree_changes_that_part",
            "a_downloaded_tree_grants_itself_nothing",
            "a_repository_at_the_home_stays_closed",
            "a_git_directory_elsewhere_is_used_once_it_is_trusted",
        ],
    ),
    (
        "Credentials in the config of the repository are masked",
        &["credentials_in_the_config_are_masked_and_kept"],
    ),
    (
        "Of a worktree elsewhere whose repository it may change",
        &["other_worktrees_survive_a_prune"],
    ),
    (
        "What editors and agents read in a directory",
        &[
            "changed_startup_files_are_told_in_one_line_and_undone",
            "startup_files_written_by_the_file_tools_are_told_in_one_line",
            "after_content_from_outside_commands_change_no_startup_file_at_any_depth",
        ],
    ),
    (
        "What was written in place of a file that is put back",
        &["what_is_put_back_is_kept_under_another_name"],
    ),
    (
        "Exceptions are what git checks out",
        &[
            "after_content_from_outside_a_merge_is_put_back_unless_git_could_fetch",
            "after_content_from_outside_a_merge_of_new_content_is_refused",
            "after_content_from_outside_git_and_package_managers_bring_what_they_have",
            "what_an_earlier_turn_prepared_in_git_is_not_what_git_had",
            "what_the_user_gives_to_git_between_two_turns_is_the_users",
        ],
    ),
    (
        "A protected file that you replace while a command runs",
        &[
            "what_a_user_replaces_meanwhile_opens_nothing",
            "what_a_user_changes_harmlessly_meanwhile_stays",
            "a_harmless_change_of_a_config_opens_it_for_no_other_command",
            "commands_set_up_no_remote_outside_of_the_config",
        ],
    ),
    (
        "A command in the background has this sandbox",
        &[
            "protected_files_are_restored",
            "a_later_command_reports_what_was_planted_before_it",
            "what_a_background_command_writes_after_a_page_is_put_back",
            "at_most_eight_run_and_all_end_with_the_turn",
        ],
    ),
    (
        "With `--allow signing` the run signs commits and tags",
        &[
            "git_signs_commits_and_tags_with_the_users_key",
            "nothing_but_commits_and_tags_is_signed",
            "a_repository_chooses_neither_program_nor_key",
            "without_the_grant_one_line_says_what_is_missing",
            "nothing_that_the_run_wrote_signs",
            "a_config_that_a_command_has_made_does_not_count",
            "what_a_command_signs_before_it_is_ended_is_reported",
        ],
    ),
    (
        "**Commands cannot read the listed places of secrets**",
        &[
            "secrets_are_never_read",
            "other_processes_keep_their_secrets",
            "secrets_of_other_homes_are_never_read",
            "our_own_files_are_denied_within_a_granted_directory",
        ],
    ),
    (
        "Hidden entries of a home stay closed",
        &["hidden_entries_of_a_home_stay_closed_unless_they_are_named"],
    ),
    (
        "A closed place that appears while a command runs",
        &["closed_places_that_appear_while_a_command_runs_stay_closed"],
    ),
    (
        "Files that a rule denies to read",
        &[
            "files_that_a_rule_denies_to_read_are_closed_to_commands",
            "a_server_does_not_see_files_that_a_rule_denies",
            "no_command_changes_a_file_that_a_rule_denies_to_change",
            "a_server_does_not_change_files_that_a_rule_denies_to_change",
        ],
    ),
    ("Their environment is an allow-list", &["only_named_variables_are_passed"]),
    (
        "The only way to other conversations",
        &[
            "only_the_user_hands_out_other_conversations",
            "a_conversation_takes_on_the_origin_of_one_that_it_reads",
        ],
    ),
    (
        "What the system cannot enforce is refused",
        &[
            "without_a_sandbox_commands_are_denied",
            "without_namespaces_commands_change_no_files",
            "a_missing_required_sandbox_fails_before_any_request",
        ],
    ),
    (
        "Every path is opened by file descriptor",
        &[
            "swapped_links_never_escape",
            "link_targets_are_checked_again",
            "a_hard_link_to_an_outside_file_is_not_written",
            "special_files_neither_hang_nor_fail",
        ],
    ),
    (
        "images and bodies of mails are parsed",
        &[
            "a_document_whose_parser_fails_cannot_be_read",
            "a_page_whose_parser_fails_is_read_tag_by_tag",
            "a_mail_whose_parser_fails_is_answered_all_the_same",
        ],
    ),
    (
        "Changes can be undone",
        &[
            "a_turn_of_fifty_changes_is_undone_and_redone",
            "changes_of_commands_are_undone_and_redone",
        ],
    ),
    (
        "Addresses are resolved once",
        &[
            "a_dns_rebinding_name_is_resolved_once_per_connection",
            "an_allowed_host_does_not_allow_another_by_redirect",
            "a_configured_proxy_is_used_only_for_public_hosts",
        ],
    ),
    (
        "Once untrusted content is in the request",
        &[
            "a_url_composed_from_read_content_is_denied",
            "an_address_at_a_cut_cannot_be_requested",
            "repetition_and_redirects_count_as_requests_and_repeated_pages_come_from_the_cache",
        ],
    ),
    ("You name a host by what you type", &["a_host_that_was_typed_is_known_in_later_turns"]),
    (
        "Words within the name of an existing file",
        &[
            "words_within_the_name_of_a_file_name_no_host",
            "the_name_of_a_file_at_depth_names_no_host",
        ],
    ),
    (
        "A page that was read is read in later turns too",
        &["links_of_a_page_can_be_opened_in_the_next_turn"],
    ),
    (
        "but not those in a skill that a run",
        &[
            "a_skill_that_was_written_after_content_by_others_names_no_hosts",
            "hosts_of_a_fetched_skill_need_a_yes_of_their_own",
        ],
    ),
    ("Untrusted content is of one of two origins", &["explain_shows_the_origin_of_a_session"]),
    ("*Project*: files", &["which_addresses_may_be_requested"]),
    (
        "*External*: pages",
        &[
            "the_results_of_a_trusted_server_are_not_content_from_outside",
            "tool_descriptions_are_untrusted_until_accepted",
            "the_memory_of_a_conversation_with_a_networked_command_is_labelled",
            "what_a_background_command_has_downloaded_is_from_outside",
            "what_a_command_has_downloaded_instructs_nothing",
        ],
    ),
    ("A call that was denied has returned nothing", &["a_denied_call_leaves_no_taint"]),
    (
        "A session keeps the highest origin",
        &[
            "a_killed_turn_does_not_lose_the_origin_of_what_it_has_read",
            "attack_scripts_cause_no_violations",
        ],
    ),
    (
        "An answer that goes to another job",
        &[
            "the_origin_of_an_answer_goes_on_with_it",
            "a_chain_of_jobs_runs_with_the_answer_of_the_one_before",
        ],
    ),
    (
        "The arguments of an MCP tool that is declared read-only",
        &[
            "a_url_composed_by_the_model_is_not_sent_to_a_server",
            "resources_of_servers_are_read_with_one_tool",
        ],
    ),
    (
        "**External content cannot change what instructs the next run**",
        &[
            "instruction_files_are_changed_after_content_from_outside_only_with_permission",
            "the_user_grants_and_denies_changes_of_startup_files",
            "attack_scripts_cause_no_violations",
        ],
    ),
    (
        "`nanobot trust` records digests",
        &["instruction_files_that_change_or_come_later_are_not_read_until_they_are_trusted_too"],
    ),
    (
        "Changes of MEMORY.md made then",
        &["memory_from_outside_stays_labelled_until_it_is_accepted"],
    ),
    ("`nanobot memory undo` reverts it", &["a_memory_written_by_a_tool_can_be_undone"]),
    (
        "Content of a project is not held back",
        &[
            "the_agents_own_notes_are_changed_after_daily_work",
            "the_memory_is_among_the_notes_that_a_rule_denies",
            "a_job_may_be_added_after_daily_work",
        ],
    ),
    (
        "The permissions of a run are stored with the job",
        &[
            "a_job_added_by_the_model_has_at_most_the_permissions_of_its_run",
            "a_job_without_limits_is_not_run",
        ],
    ),
    ("The tool `cron` creates jobs", &["a_reminder_becomes_a_job_that_runs_and_is_removed"]),
    ("It is available in turns that a person starts", &["a_job_run_cannot_add_jobs"]),
    (
        "It adds, changes and removes nothing once external content",
        &[
            "content_from_outside_adds_a_job_only_with_permission",
            "what_only_looks_like_a_reply_to_a_reminder_changes_no_job",
        ],
    ),
    (
        "A job that the model adds is reported",
        &["a_reminder_becomes_a_job_that_runs_and_is_removed"],
    ),
    (
        "The tool removes only jobs",
        &["the_model_cannot_remove_jobs_of_the_user", "the_model_can_add_at_most_twenty_jobs"],
    ),
    (
        "If a person edits such a job",
        &["an_edit_by_the_user_does_not_change_the_limits_of_the_job"],
    ),
    (
        "The job file is not accessible to tools",
        &[
            "no_tool_reads_the_output_of_other_jobs",
            "no_instruction_file_or_job_can_be_created_by_a_command",
        ],
    ),
    ("Commands of a job", &["a_grant_applies_only_to_the_unmodified_message"]),
    (
        "A heartbeat reads HEARTBEAT.md",
        &[
            "untrusted_content_of_a_task_stays_out_of_the_next_check",
            "the_heartbeat_is_in_no_job_file",
        ],
    ),
    (
        "**A directory configures nothing**",
        &["instruction_files_of_a_directory_are_read_after_it_is_trusted"],
    ),
    (
        "A SKILL.md in the folders of `skills.directories`",
        &[
            "a_skill_that_changes_after_its_first_use_is_not_used",
            "no_run_adds_a_skill_to_a_shared_folder",
            "the_users_own_skills_are_read_as_the_users_and_never_changed",
        ],
    ),
    ("`agent` never prompts", &["a_denial_is_final_reported_once_and_names_its_flag"]),
    (
        "Text from models, tools, files and servers is sanitized",
        &[
            "escape_sequences_in_an_answer_are_not_executed",
            "escape_sequences_in_calls_and_failures_are_not_executed",
            "only_our_own_colours_are_executed",
            "what_people_read_has_no_escape_sequences_in_a_pipe_either",
        ],
    ),
    (
        "A local server runs in the kernel sandbox",
        &[
            "a_server_can_neither_read_secrets_nor_write_files",
            "a_server_sees_its_configured_variables_and_no_key",
        ],
    ),
    (
        "Even if these directories contain them",
        &[
            "a_server_with_home_access_cannot_change_startup_files_or_our_files",
            "files_replaced_or_created_while_a_server_runs_are_denied_to_it",
            "our_own_directories_cannot_be_granted_to_a_server",
        ],
    ),
    (
        "Existing start-up files are protected by mounts",
        &["a_server_with_home_access_cannot_change_startup_files_or_our_files"],
    ),
    (
        "What a command could not leave after content from outside",
        &[
            "a_server_leaves_no_startup_files_during_its_calls",
            "a_server_writes_startup_files_where_the_user_allows_it",
        ],
    ),
    (
        "It has namespaces of its own too",
        &[
            "a_kill_of_the_program_ends_all_server_processes",
            "a_server_with_a_hundred_children_leaves_no_process",
        ],
    ),
    ("Without a sandbox it is not started", &[]),
    (
        "Server output is truncated, sanitized and untrusted",
        &[
            "an_oversized_result_is_truncated_for_the_model",
            "escape_sequences_and_invisible_characters_are_removed",
            "a_changed_tool_is_denied",
            "a_tool_added_later_needs_approval_despite_its_hints",
            "changed_instructions_are_not_used_until_they_are_accepted",
            "what_a_prompt_says_is_sent_once_it_is_accepted",
            "servers_may_not_use_the_model_unless_the_config_says_so",
        ],
    ),
    (
        "A server gets replies of the model (sampling) only if",
        &[
            "a_sampling_request_is_rejected",
            "servers_may_not_use_the_model_unless_the_config_says_so",
            "a_request_outside_of_a_call_is_refused",
            "a_thousand_requests_of_a_call_are_bounded",
            "the_budget_of_the_run_bounds_the_requests",
        ],
    ),
    (
        "with no tools and nothing of the conversation",
        &["a_server_gets_a_reply_and_nothing_of_the_conversation"],
    ),
    (
        "With `ask` you approve each request",
        &[
            "the_user_sees_what_a_server_requests_and_decides",
            "a_request_that_needs_approval_is_refused_where_nobody_can_be_asked",
        ],
    ),
    (
        "**Keys that nanobot knows do not leak**",
        &[
            "command_output_contains_no_keys",
            "model_and_server_output_contains_no_keys",
            "known_keys_are_masked_in_tool_results_however_they_are_spelled",
            "secrets_in_the_arguments_of_a_server_are_masked",
            "other_servers_get_no_signature_unless_the_config_says_so",
            "the_file_of_gcloud_is_for_googles_servers_alone",
        ],
    ),
    (
        "Spans (`telemetry.otlp`) are exported only where",
        &["spans_have_content_only_on_request", "the_trace_of_the_caller_is_passed_on"],
    ),
    (
        "Only senders in `channels.NAME.allowFrom`",
        &[
            "unknown_senders_get_one_code_and_cost_nothing",
            "nothing_is_asked_when_no_sender_is_allowed",
        ],
    ),
    (
        "Others cost nothing",
        &[
            "unknown_senders_get_one_code_and_cost_nothing",
            "senders_who_are_not_listed_are_refused_and_shown",
        ],
    ),
    (
        "Only what an allowed sender typed",
        &[
            "text_of_others_is_not_obeyed_in_any_form",
            "the_words_of_an_allowed_sender_are_the_users",
            "only_typed_words_name_hosts",
            "a_host_is_named_by_typed_words_alone",
            "a_mail_names_no_host",
        ],
    ),
    (
        "A sender starts at most",
        &[
            "old_messages_and_floods_start_no_turn",
            "the_budgets_of_senders_and_channels_end_with_the_day",
        ],
    ),
    // Advice.
    ("A user name in `allowFrom` works", &[]),
    (
        "The address of a mail counts only if",
        &[
            "forged_senders_are_refused_and_shown",
            "only_the_topmost_header_of_a_trusted_server_counts",
            "the_domain_of_the_sender_must_pass",
        ],
    ),
    (
        "that is bound to a workspace is answered with the memory",
        &[
            "nothing_leaks_between_two_personas",
            "a_bound_sender_has_a_memory_apart",
            "a_binding_that_cannot_be_used_answers_nothing_from_another_memory",
        ],
    ),
    (
        "A webhook request counts only with the service's signature",
        &[
            "requests_without_a_valid_signature_are_refused",
            "a_signed_event_of_slack_starts_a_poll",
            "a_signed_message_is_answered_once",
        ],
    ),
    (
        "A service's token goes to no host but its own",
        &["attachments_go_both_ways", "media_go_both_ways_and_refusals_have_their_statuses"],
    ),
    (
        "A call that the policy asks about becomes a question",
        &[
            "a_call_that_untrusted_content_makes_questionable_is_asked_about",
            "the_whole_call_is_shown_and_cannot_leave_its_block",
            "nothing_is_hidden",
        ],
    ),
    (
        "A reply to that message, its button or its code approves it",
        &[
            "a_bare_yes_runs_the_call_once_and_its_result_goes_to_the_model",
            "a_reply_or_a_code_answers_after_other_messages",
            "with_two_open_questions_a_yes_needs_a_code",
            "a_yes_to_the_model_is_no_approval",
            "a_mail_approves_by_its_code_and_dmarc_alone",
            "a_call_is_approved_by_a_press",
        ],
    ),
    (
        "The answer counts from the sender whose message led to the call",
        &[
            "a_group_answers_by_a_reply_and_only_the_approvers_do",
            "nothing_else_approves_a_call",
            "only_a_press_of_the_asked_person_below_the_question_counts",
        ],
    ),
    (
        "Exactly the stored call is made, once",
        &[
            "a_call_is_made_once_and_within_an_hour",
            "a_file_that_changed_since_the_question_is_not_written",
            "an_answer_after_an_hour_or_after_new_does_nothing",
            "an_expired_question_stays_closed_if_the_clock_is_set_back",
            "a_killed_poll_asks_and_makes_the_call_once",
        ],
    ),
    (
        "What a rule or a profile denies, `--net`",
        &["what_nobody_may_approve_in_a_chat_is_refused", "only_some_permissions_can_be_approved"],
    ),
    (
        "`always` holds for that sender",
        &["always_holds_for_the_sender_in_the_chat_until_it_is_taken_back"],
    ),
    (
        "The model sees neither the question nor its code",
        &["the_code_is_not_shown_to_the_model", "a_mail_approves_by_its_code_and_dmarc_alone"],
    ),
    (
        "`channels.NAME.approvals` `false` turns this off",
        &["what_nobody_may_approve_in_a_chat_is_refused"],
    ),
    ("With `--approvals`, a message that has the code", &["a_program_approves_a_call_by_its_code"]),
    ("A mail is content from outside as a whole", &["a_mail_is_content_from_outside"]),
    (
        "Mail of programs and lists is not answered",
        &[
            "mail_that_must_not_be_answered_costs_nothing",
            "one_sender_gets_twenty_answers_in_an_hour",
        ],
    ),
    (
        "The agent writes only to chats",
        &[
            "the_message_tool_writes_to_the_chats_of_the_user",
            "after_content_from_outside_only_the_own_chat_is_written_to",
        ],
    ),
    ("A directory cannot set any", &["a_directory_sets_no_hooks"]),
    (
        "The policy decides after a hook",
        &[
            "changed_arguments_pass_the_schema_and_the_policy_again",
            "a_hook_cannot_allow_what_the_policy_denies",
            "a_denied_call_that_was_made_passes_the_hooks_after_it",
        ],
    ),
    (
        "A hook runs as a command of the run",
        &[
            "a_hook_in_the_sandbox_works_on_the_files_of_the_run",
            "a_hook_in_the_sandbox_has_no_key_and_no_network",
            "no_hook_runs_what_the_run_wrote_outside_of_the_sandbox",
            "what_the_run_wrote_is_hidden_from_hooks_by_every_path",
            "where_nothing_can_be_hidden_a_hook_outside_of_the_sandbox_is_refused",
        ],
    ),
    (
        "A program that is a tool runs as a command does",
        &[
            "a_program_runs_in_the_sandbox_of_commands",
            "a_program_is_under_the_policy",
            "programs_that_cannot_be_tools_are_left_out_with_the_reason",
        ],
    ),
    ("No run may change the programs", &["a_program_runs_in_the_sandbox_of_commands"]),
    (
        "A directory's own programs are tools only after",
        &[
            "a_directory_offers_its_tools_only_while_they_are_as_they_were_trusted",
            "a_program_that_changes_during_the_run_is_not_run",
        ],
    ),
    (
        "A prompt file only narrows",
        &["front_matter_narrows", "front_matter_widens_only_in_a_pinned_file"],
    ),
    (
        "The text of any other file is content of a project",
        &[
            "the_text_of_a_file_that_is_not_pinned_is_not_the_users",
            "the_schema_of_a_file_that_is_not_pinned_is_no_file_elsewhere",
            "a_file_that_is_not_pinned_gets_no_other_conversations",
        ],
    ),
    (
        "Its calls are under the same policy as the model's",
        &["a_client_gets_the_file_tools_under_the_policy"],
    ),
    (
        "What it sends counts as text of a program",
        &["ask_is_a_turn_in_a_session", "what_a_client_has_read_limits_what_it_may_do"],
    ),
    ("It can read the memory and every session", &["ask_is_a_turn_in_a_session"]),
    (
        "The token of a login to an MCP server goes to the address",
        &["a_token_goes_to_no_other_address"],
    ),
    (
        "A login needs an authorization server whose metadata",
        &[
            "servers_whose_metadata_cannot_be_trusted_get_no_login",
            "refused_and_forged_redirects_store_nothing",
            "addresses_are_encrypted_or_local",
        ],
    ),
    (
        "**The command of `--until` runs as a command of the run does**",
        &[
            "a_script_of_the_model_gets_no_key_and_leaves_nothing_outside",
            "a_run_without_commands_is_refused_before_the_first_request",
        ],
    ),
    ("Its output is content of a project", &["its_output_is_content_of_others"]),
    (
        "**With `--propose`, file tools and commands change nothing but a copy**",
        &["nothing_but_the_copy_is_changed", "a_proposal_is_a_patch_that_git_takes"],
    ),
    (
        "`nanobot apply` makes only changes that a run with `--write` could make",
        &["what_a_run_may_not_change_no_patch_changes"],
    ),
    ("Known keys are masked in what is sent", &[]),
    ("`nanobot serve pipe` checks no sender", &["a_message_is_answered_and_acknowledged"]),
    (
        "its conversations are apart from yours and from chats",
        &[
            "files_of_messages_are_read_as_far_as_the_run_may_read_them",
            "messages_of_programs_have_conversations_of_their_own",
        ],
    ),
    ("With `--name`, messages and answers are kept", &[]),
    (
        "an unknown user's invitation to a direct chat is accepted",
        &["unknown_senders_are_joined_as_often_as_there_are_codes"],
    ),
    (
        "Known are those of the config",
        &["a_key_in_a_file_of_the_config_is_known_before_it_is_used"],
    ),
    (
        "a model is what `--dry-run` shows",
        &[
            "known_keys_in_a_message_are_masked_in_what_is_sent_and_stored",
            "send_keys_sends_a_known_key_and_stores_it_masked",
        ],
    ),
    (
        "The address of a webhook is a key too",
        &["the_address_of_a_webhook_is_a_secret_and_can_be_kept_anywhere"],
    ),
    ("Placeholders such as", &["placeholders_and_text_that_only_looks_like_a_key_are_sent"]),
    (
        "back into a file, the key that stood there",
        &[
            "a_masked_key_that_is_written_back_stays_in_the_file",
            "a_mask_whose_key_is_unclear_is_not_written",
        ],
    ),
];

/// The rows of the table of situations.
const SITUATIONS: &[TestedPromise] = &[
    (
        "| commands without `--write` |",
        &["without_namespaces_commands_change_no_files", "without_a_sandbox_commands_are_denied"],
    ),
    ("| commands that may change files |", &["without_namespaces_commands_change_no_files"]),
    (
        "| the rest of the file system |",
        &["a_command_sees_nothing_but_what_is_granted", "escape_attempts_fail"],
    ),
    ("| processes of others |", &["escape_attempts_fail"]),
    ("| processes left behind |", &["no_process_outlives_a_command"]),
    (
        "| sockets, local and on loopback |",
        &["sockets_cannot_be_opened", "without_namespaces_there_is_no_loopback_and_it_is_said"],
    ),
    ("| MCP servers |", &["a_server_with_home_access_cannot_change_startup_files_or_our_files"]),
];

/// The entries under "Limits". Those without a story say what nothing here can try, or what is so by construction.
const LIMITS: &[TestedPromise] = &[
    ("The kernel is trusted", &[]),
    (
        "a file of the repository may become a start-up file",
        &[
            "after_content_from_outside_git_and_package_managers_bring_what_they_have",
            "a_stash_of_instructions_is_undone_even_if_it_is_dropped",
        ],
    ),
    (
        "Start-up names are looked for 64 levels deep",
        &["after_content_from_outside_commands_change_no_startup_file_at_any_depth"],
    ),
    ("`rm -rf .git`", &["git_runs_nothing_that_a_command_left_behind"]),
    ("`--sandbox off` and `--profile full`", &["with_the_sandbox_off_commands_run_without_one"]),
    (
        "Files in the working directory are readable",
        &[
            "the_policy_withstands_bypass_attempts",
            "toolchains_outside_the_system_are_readable_but_their_credentials_are_not",
        ],
    ),
    (
        "An MCP server is trusted with the data",
        &[
            "changes_of_startup_files_by_a_server_are_reported",
            "a_server_that_writes_startup_files_outside_of_calls_is_reported",
        ],
    ),
    ("Without namespaces, a command can change modes", &["escape_attempts_fail"]),
    ("A command can reach a socket of another program", &["sockets_cannot_be_opened"]),
    ("Where a granted directory lies below `/tmp`", &[]),
    (
        "is covered by an empty file or directory",
        &[
            "a_denied_file_stays_covered_where_it_is",
            "a_directory_with_a_denied_path_is_listed_or_the_reason_is_given",
        ],
    ),
    (
        "The git objects that commands write after content from outside",
        &["what_a_turn_gives_to_git_stays_known_whatever_becomes_of_the_turn_and_the_repository"],
    ),
    (
        "What git would run for you later",
        &[
            "git_runs_nothing_that_a_command_left_behind",
            "a_new_repository_cannot_make_git_run_commands",
            "ordinary_settings_of_new_repositories_stay",
            "a_setting_that_runs_programs_is_taken_out",
        ],
    ),
    (
        "A host that was allowed can receive data",
        &[
            "hosts_are_allowed_by_provenance",
            "each_provider_gets_the_query_alone_and_its_pages_are_listed",
            "after_content_from_outside_it_is_left_out_unless_always",
            "the_fallback_answers_where_it_is_left_out",
            "offline_nothing_is_searched",
        ],
    ),
    (
        "CPU, memory and disk usage",
        &[
            "commands_and_their_children_have_limits",
            "memory_is_limited_where_the_config_says_so",
            "a_limit_that_cannot_be_set_is_an_error",
        ],
    ),
    ("The program of a channel", &["groups_and_senders_of_programs_follow_the_policies"]),
    ("The commands of a job are the user's", &["a_grant_applies_only_to_the_unmodified_message"]),
    (
        "A hook receives what the model asks for",
        &["a_hook_that_fails_is_reported_and_stops_only_if_it_is_strict"],
    ),
    (
        "takes the editor that started it for you",
        &[
            "the_editor_is_asked_for_permissions",
            "servers_of_the_editor_are_used",
            "a_page_that_an_editor_embeds_is_content_from_outside",
            "an_editor_without_a_project_does_not_open_the_home_directory",
        ],
    ),
    ("The model's text can be false", &["a_denial_is_final_reported_once_and_names_its_flag"]),
    ("A file that a run wrote into the workspace", &["which_addresses_may_be_requested"]),
    (
        "`nanobot undo` reverts the changes of commands",
        &["what_commands_change_beyond_the_limits_is_told"],
    ),
    ("Anyone who controls your environment", &["the_tested_program_contains_each_hook"]),
    ("macOS, and Linux before 6.2", &["without_a_sandbox_commands_are_denied"]),
];

/// The part of `text` from `start` to `end`.
fn section<'t>(text: &'t str, start: &str, end: &str) -> &'t str {
    let (_, rest) = text.split_once(start).expect("the section begins");
    rest.split_once(end).expect("and ends").0
}

/// The sentences of `text`, without the numbers and titles of its items.
fn sentences(text: &str) -> Vec<String> {
    let all_words: Vec<&str> = text.split_whitespace().collect();
    let is_number =
        |word: &str| word.strip_suffix('.').is_some_and(|digits| digits.parse::<u8>().is_ok());
    let mut sentences = vec![String::new()];
    for (index, word) in all_words.iter().enumerate() {
        if is_number(word) {
            continue;
        }
        let sentence = sentences.last_mut().expect("there is always one");
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.push_str(word);
        let next = all_words[index + 1..].iter().find(|word| !is_number(word));
        let begins = |word: &&&str| {
            word.starts_with(|letter: char| letter.is_uppercase() || "*`".contains(letter))
        };
        if word.ends_with('.') && next.as_ref().is_some_and(begins) {
            sentences.push(String::new());
        }
    }
    // A title in bold is a sentence with the next one.
    let is_title = |sentence: &String| sentence.starts_with("**") && sentence.ends_with(".**");
    sentences.retain(|sentence| !sentence.is_empty() && !is_title(sentence));
    sentences
}

/// Checks that each of `statements` has an entry, and each entry a statement.
fn check_statements(statements: &[String], promises: &[TestedPromise]) {
    for statement in statements {
        let matching = promises.iter().filter(|(part, _)| statement.contains(part));
        assert_eq!(matching.count(), 1, "entries for: {statement}");
    }
    for (part, _) in promises {
        assert!(
            statements.iter().any(|statement| statement.contains(part)),
            "no sentence has: {part}"
        );
    }
}

fn collect_sources(directory: &Path, into: &mut String) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect_sources(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_promise_names_its_stories() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let guarantees = section(&text, "which case is yours:", "## What the system has to allow");
    check_statements(&sentences(guarantees), GUARANTEES);
    let situations = section(&text, "## What the system has to allow", "## Limits");
    let rows = situations.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |"));
    check_statements(&rows.map(str::to_owned).collect::<Vec<_>>(), SITUATIONS);
    let limits = section(&text, "## Limits\n", "## How it was tested");
    let limits = limits.split("\n- ").skip(1);
    let limits: Vec<String> = limits.map(|entry| entry.replace("\n ", "")).collect();
    check_statements(&limits, LIMITS);
    let mut sources = String::new();
    collect_sources(&root.join("tests/cli"), &mut sources);
    collect_sources(&root.join("src"), &mut sources);
    collect_sources(&root.join("crates"), &mut sources);
    let all = || GUARANTEES.iter().chain(SITUATIONS).chain(LIMITS);
    for (part, stories) in all() {
        for story in *stories {
            let defined = format!("fn {story}()");
            assert!(sources.contains(&defined), "{part}: there is no story `{story}`");
        }
    }
    let untested = all().filter(|(_, stories)| stories.is_empty()).count();
    print_count(&format!("{} promises, {untested} without a story", all().count()));
    assert_eq!(untested, 6);
}
