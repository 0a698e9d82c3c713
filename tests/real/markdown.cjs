// Reads messages with their intended texts as JSON lines, and lets the parsers of others show them: each letter of the
// intended text must be there, apart from the addresses of links no other, and no mention.
"use strict";
const fs = require("fs");
const path = require("path");
const modules = path.resolve(process.argv[2]);
const load = (name) => require(path.join(modules, name));
const mobile = load("node_modules/@mattermost/commonmark");
const marked = load("marked.js");
const discord = load("node_modules/discord-markdown-parser");
const slack = load("node_modules/slack-message-parser");
const entities = load("node_modules/entities");
/// The words after `@` that notify a channel of Mattermost.
const CHANNEL_MENTIONS = ["all", "channel", "here"];

/// Collects what a parser shows: texts, texts with the addresses of links, and mentions.
class Shown {
  text = "";
  full = "";
  mentions = [];
  add(text) {
    this.text += text;
    this.full += text;
  }
  address(text) {
    this.full += ` ${text} `;
  }
}

/// Mattermost's programs for phones and tablets.
function mattermostMobile(markup, shown) {
  const walker = new mobile.Parser().parse(markup).walker();
  for (let step; (step = walker.next()); ) {
    const { node, entering } = step;
    if (!entering) {
      if (["link", "image"].includes(node.type)) shown.address(node.destination);
      if (["paragraph", "heading", "table_row", "item"].includes(node.type)) shown.add("\n");
      continue;
    }
    if (node.type === "at_mention") {
      shown.mentions.push(node.mentionName);
      shown.add(`@${node.mentionName}`);
    } else if (node.type === "hashtag") shown.add(`#${node.hashtag}`);
    else if (node.type === "channel_link") shown.add(`~${node.channelName}`);
    else if (node.type === "softbreak" || node.type === "linebreak") shown.add("\n");
    else if (node.literal) shown.add(node.literal + (node.type.endsWith("block") ? "\n" : ""));
  }
}

/// Mattermost's web application.
function mattermostWeb(markup, shown) {
  const options = { sanitize: true, gfm: true, tables: true, mangle: false };
  const unescape = (text) =>
    text.replace(/&(amp|lt|gt|quot|#39);/g, (_, name) => ({ amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'" })[name]);
  const html = marked(markup, options);
  const open = [];
  for (const [, tag, text] of html.matchAll(/<([^>]*)>|([^<]+)/g)) {
    const attribute = (name) => unescape((tag ?? "").match(` ${name}="([^"]*)"`)?.[1] ?? "");
    if (text) shown.add(unescape(text));
    else if (tag.startsWith("a ")) open.push(attribute("href"));
    else if (tag === "/a") shown.address(open.pop());
    else if (tag.startsWith("img ")) {
      shown.add(attribute("alt"));
      shown.address(attribute("src"));
    } else if (/^(br|\/p|\/h\d|li|\/li|\/tr|\/pre|\/t[dh])/.test(tag)) shown.add("\n");
  }
  // The application finds mentions in the texts.
  for (const [, name] of shown.text.matchAll(/@([a-z0-9.\-_]+)/gi)) shown.mentions.push(name);
}

/// A parser for Discord's Markdown.
function discordLike(markup, shown) {
  const show = (nodes) => {
    for (const node of [nodes].flat()) {
      // The request says that no mention notifies anyone.
      if (["user", "role", "channel", "everyone", "here"].includes(node.type)) shown.add(node.id ?? node.type);
      else if (node.type === "timestamp") shown.add(`t:${node.timestamp}`);
      else if (typeof node.content === "string") shown.add(node.content);
      else if (node.content) show(node.content);
      else if (node.type === "br" || node.type === "newline") shown.add("\n");
      else shown.add(JSON.stringify(node));
      if (node.target) shown.address(node.target);
    }
  };
  show(discord.parse(markup, "extended"));
}

/// A parser for Slack's mrkdwn.
function mrkdwn(markup, shown) {
  const { NodeType, parse } = slack;
  const unescape = (text) => text.replace(/&(amp|lt|gt);/g, (_, name) => ({ amp: "&", lt: "<", gt: ">" })[name]);
  const show = (node) => {
    if ([NodeType.UserLink, NodeType.ChannelLink, NodeType.Command].includes(node.type)) shown.mentions.push(node.source);
    else if (node.type === NodeType.URL) {
      node.label ? node.label.forEach(show) : shown.add(node.url);
      shown.address(unescape(node.url));
    } else if (node.type === NodeType.Emoji) shown.add(node.source);
    else if (node.children) node.children.forEach(show);
    else shown.add(unescape(node.text));
  };
  show(parse(markup));
}

const readers = {
  mattermost: { mattermostMobile, mattermostWeb },
  discord: { discordLike },
  mrkdwn: { mrkdwn },
  slack: {},
};

/// The letters of a text, without the marks of lists and without escapes.
function letters(text) {
  const unmarked = text.replace(/^([>\s•☐☑]|\[[ x]\]|([-*+]|\d+[.)])(?=\s|$))+/gm, "");
  const decoded = entities.decodeHTML(unmarked).replace(/(%[0-9a-f]{2})+/gi, decodeURIComponent);
  return decoded.toLowerCase().match(/[\p{L}\p{N}]/gu) ?? [];
}

/// True if the letters of `part` are in `whole`, in their order.
function isWithin(part, whole) {
  let at = 0;
  for (const letter of whole) if (letter === part[at]) at += 1;
  return at === part.length;
}

/// Examples that the parsers themselves read differently. No text is lost in them.
const DISAGREEMENTS = [
  // Links within links.
  "[foo *[bar [baz](/uri)](/uri)*](/uri)",
  "![[[foo](uri1)](uri2)](uri3)",
  "![foo ![bar](/url)](/url2)",
  "![foo [bar](/url)](/url2)",
  // A title in brackets or with quotes, and a link on two lines.
  "[link](/url \"title\")\n[link](/url 'title')\n[link](/url (title))",
  '[link](/url "title "and" title")',
  '[link](   /uri\n  "title"  )',
  // A definition whose label has several lines.
  "[\nfoo\n]: /url\nbar",
  "[Foo\n  bar]: /url\n\n[Baz][Foo bar]",
  "[\n ]\n\n[\n ]: /uri",
  // A fence below a tag, without a line between.
  "<div></div>\n``` c\nint x = 33;\n```",
];

let [count, failures] = [0, 0];
for (const line of fs.readFileSync(0, "utf8").trim().split("\n")) {
  const { service, text, markup, plain } = JSON.parse(line);
  count += 1;
  if (DISAGREEMENTS.includes(text)) continue;
  for (const [name, read] of Object.entries(readers[service])) {
    const shown = new Shown();
    markup.forEach((part) => read(part, shown));
    const wanted = letters(plain.join("\n"));
    const pings = shown.mentions.filter((name) => service !== "mattermost" || CHANNEL_MENTIONS.includes(name.toLowerCase()));
    const problems = [];
    if (!isWithin(wanted, letters(shown.full))) problems.push("letters are lost");
    if (!isWithin(letters(shown.text), wanted)) problems.push("letters are added");
    if (pings.length) problems.push(`mentions ${pings}`);
    if (problems.length) {
      failures += 1;
      console.log(`${name}: ${problems}: ${JSON.stringify({ text, markup, plain, shown: shown.text, full: shown.full })}`);
    }
  }
}
console.log(failures ? `${failures} failures` : `${count} texts`);
process.exit(failures ? 1 : 0);
