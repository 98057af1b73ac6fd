/* Bodies of inference requests: a number, the length of the JSON, the JSON and binary tensors. Any
 * bytes are an error with a reason, or a request that a worker and then the gateway receive as it
 * was sent, and whose answer, which repeats its inputs, is JSON with the binary tensors behind it.
 * Inputs in regions stay zero. Bodies that register regions are read too. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "programs/serve/base/message.h"
#include "programs/serve/http/http_body.h"
#include "tests/fuzz/input.h"

#define INPUT_BYTES_MAX (1U << 20)

static struct sl_serve_request request;
static struct sl_http_body body;

/* A body that the parser accepts is accepted by the encoder, and its message by the decoder. */
static void pass(struct sl_serve_message *message)
{
    static struct sl_serve_message received;
    uint8_t wire[SL_SERVE_MESSAGE_BYTES];
    struct sl_reason reason = {""};
    memcpy(message->tensors, request.inputs, request.input_count * sizeof message->tensors[0]);
    message->tensor_count = request.input_count;
    const int length = sl_serve_message_encode(message, wire, &reason);
    sl_assert(length > 0);
    sl_assert(sl_serve_message_decode(wire, (uint32_t)length, &received, &reason) == 0);
    sl_assert(memcmp(&received, message, sizeof received) == 0);
}

static void answer(void)
{
    static struct sl_serve_message infer, done;
    memset(&infer, 0, sizeof infer);
    memset(&done, 0, sizeof done);
    infer.kind = SL_SERVE_MESSAGE_INFER;
    infer.incarnation = infer.request = infer.output_room = 1;
    infer.model[0] = 'm';
    infer.input_bytes = request.input_bytes;
    pass(&infer);
    done.kind = SL_SERVE_MESSAGE_DONE;
    done.output_bytes = request.input_bytes;
    pass(&done);
    request.answer.output = request.input;
    request.answer.output_count = done.tensor_count;
    memcpy(request.answer.outputs, done.tensors, sizeof request.answer.outputs);
    struct sl_reason reason = {""};
    char *text;
    size_t bytes, json_bytes;
    if (sl_http_body_answer(&body, &request, &text, &bytes, &json_bytes, &reason) != 0) {
        sl_assert(reason.text[0] != '\0');
        return;
    }
    json_error_t error;
    json_t *root =
        json_loadb(text, json_bytes == 0 ? bytes : json_bytes, JSON_DECODE_INT_AS_REAL, &error);
    sl_assert(json_array_size(json_object_get(root, "outputs")) > 0);
    json_decref(root);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    struct sl_bytes in = sl_bytes_over(bytes, byte_count);
    struct sl_reason reason = {""};
    const struct sl_bytes json = fuzz_input_piece(&in, UINT16_MAX);
    char *text = malloc(json.left + 1); /* of that length: a reader beyond it is found */
    memcpy(text, json.next, json.left);
    text[json.left] = '\0';
    struct sl_http_body_region region = {"", 0, 0};
    if (sl_http_body_read_region(text, json.left, &region, &reason) == 0) {
        sl_assert(region.key[0] != '\0' && region.bytes > 0 && region.bytes <= INT64_MAX &&
                  region.offset <= INT64_MAX);
    }
    memset(&request, 0, sizeof request);
    request.model[0] = 'm';
    if (sl_http_body_parse(text, json.left, &body, &request, &reason) != 0) {
        sl_assert(reason.text[0] != '\0');
    } else if (request.input_bytes <= INPUT_BYTES_MAX) {
        request.input = malloc(request.input_bytes);
        memset(request.input, 0, request.input_bytes);
        if (body.binary_bytes <= in.left) {
            for (uint64_t at = 0, piece = 1; at < body.binary_bytes; at += piece, piece = 7) {
                piece = piece < body.binary_bytes - at ? piece : body.binary_bytes - at;
                sl_http_body_put_binary(&body, &request, at, in.next + at, piece);
            }
        }
        if (sl_http_body_read_elements(&body, &request, &reason) == 0) {
            answer();
        } else {
            sl_assert(reason.text[0] != '\0');
        }
        free(request.input);
    }
    free(text);
    return 0;
}
