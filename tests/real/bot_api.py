"""Tests our stand-in for Telegram's Bot API with python-telegram-bot, and our markup with Telegram's own parser.

bot_api.py client ADDRESS TOKEN    calls everything that the program calls
bot_api.py markup                  parses the `markup` of JSON lines, and compares its letters with those of `plain`
"""

import asyncio
import json
import sys


async def client(address, token):
    from telegram import BotCommand, LinkPreviewOptions, ReactionTypeEmoji, ReplyParameters
    from telegram import Bot
    from telegram.error import BadRequest, Conflict, InvalidToken, RetryAfter

    def bot(token):
        return Bot(token, base_url=f"{address}/bot", base_file_url=f"{address}/file/bot")

    async def fails(call, kind, text):
        try:
            await call
        except kind as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"{text}: no error")

    await fails(bot("1:wrong").get_me(), InvalidToken, "Unauthorized")
    bot, other = bot(token), bot(token)
    assert (await bot.get_me()).username == "story_bot"

    updates = await bot.get_updates(offset=0, limit=100, timeout=1, allowed_updates=["message"])
    messages = [update.message for update in updates]
    text, photo, document, reply, forward, album, topic = messages
    assert text.text == "hello" and text.chat.type == "private" and text.from_user.id == 7
    assert photo.photo[0].file_size == 23 and photo.chat.type == "supergroup"
    assert document.document.file_name == "a.txt"
    assert reply.reply_to_message.text == "quoted"
    assert forward.forward_origin.sender_user_name == "Eve"
    assert album.media_group_id == "album" and topic.message_thread_id == 3
    # An update stays until a later offset confirms it.
    again = await bot.get_updates(offset=updates[1].update_id)
    assert [each.update_id for each in again] == [each.update_id for each in updates[1:]]

    waiting = asyncio.create_task(bot.get_updates(offset=updates[-1].update_id + 1, timeout=60))
    while not waiting.done():
        await other.get_updates(offset=updates[-1].update_id + 1)
        await asyncio.sleep(0)
    await fails(waiting, Conflict, "terminated by other getUpdates")

    await fails(bot.send_message(7, "first"), RetryAfter, "3 seconds")
    sent = await bot.send_message(
        7, "<b>a</b>", parse_mode="HTML", link_preview_options=LinkPreviewOptions(is_disabled=True), message_thread_id=3,
        reply_parameters=ReplyParameters(message_id=text.message_id, allow_sending_without_reply=True),
    )
    assert sent.message_id > 0 and sent.chat.id == 7 and sent.from_user.is_bot
    await fails(bot.send_message(7, "a" * 4097), BadRequest, "too long")
    for method in (bot.send_photo, bot.send_document, bot.send_voice, bot.send_audio, bot.send_video):
        assert (await method(7, b"bytes")).message_id > sent.message_id
    assert await bot.send_chat_action(7, "typing")
    assert await bot.set_message_reaction(7, text.message_id, [ReactionTypeEmoji("👍")])
    assert await bot.set_my_commands([BotCommand("new", "start a new conversation")])
    file = await bot.get_file("f1")
    assert bytes(await file.download_as_bytearray()) == b"the content of the file"
    print("ok")


def markup():
    import tdjson

    def execute(request):
        return json.loads(tdjson.td_execute(json.dumps(request).encode()))

    execute({"@type": "setLogVerbosityLevel", "new_verbosity_level": 0})

    def letters(text):
        return [each for each in text if each.isalnum()]

    count = 0
    for line in sys.stdin:
        part = json.loads(line)
        mode = {"@type": "textParseModeHTML"}
        parsed = execute({"@type": "parseTextEntities", "text": part["markup"], "parse_mode": mode})
        assert parsed["@type"] == "formattedText", (parsed, part)
        units = parsed["text"].encode("utf-16-le")
        assert len(units) // 2 <= 4096, part
        shown, plain = letters(parsed["text"]), letters(part["plain"])
        if any(entity["type"]["@type"] == "textEntityTypeTextUrl" for entity in parsed["entities"]):
            # The text form has the address of a link after its text.
            rest = iter(plain)
            assert all(letter in rest for letter in shown), (parsed, part)
        else:
            assert shown == plain, (parsed, part)
        count += 1
    print(count)


if __name__ == "__main__":
    if sys.argv[1] == "client":
        asyncio.run(client(*sys.argv[2:]))
    else:
        markup()
