#include "ps/server/token.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/assert.h"

#define SLAB_TOKENS 64

/* Tokens that stay free before the longest free one is reused. */
#define IDLE_TOKENS 256U

enum token_state {
    TOKEN_FREE,
    TOKEN_OUT, /* offered to the handler, or kept by it */
    TOKEN_ANSWERED,
};

struct sl_kv_token {
    struct sl_server_tokens *tokens;
    struct sl_kv_token *next; /* in the list of free or of answered tokens */
    enum token_state state;   /* under the lock */
    struct sl_kv_answer answer;
    /* Owner reactor: */
    struct sl_server_request *request; /* NULL: nothing waits for the answer */
    bool has_arrived;                  /* the answer, and `answered` was called */
};

struct token_list {
    struct sl_kv_token *first, *last;
};

struct token_slab {
    struct token_slab *next;
    struct sl_kv_token tokens[SLAB_TOKENS];
};

struct sl_server_tokens {
    sl_server_token_answered_fn *answered;
    struct sl_kv_token *offered;  /* owner reactor; NULL: none */
    pthread_mutex_t lock;         /* of the following */
    struct sl_mailbox_lane *lane; /* to the reactor; NULL: the server has ended */
    uint32_t references;          /* the server, each token that is out, and a mail under way */
    uint32_t idle_count;
    bool is_announced; /* a mail is under way */
    struct token_list idle, arrived;
    struct token_slab *slabs;
};

static void list_append(struct token_list *list, struct sl_kv_token *token)
{
    token->next = NULL;
    if (list->first == NULL) {
        list->first = token;
    } else {
        list->last->next = token;
    }
    list->last = token;
}

static struct sl_kv_token *list_take(struct token_list *list)
{
    struct sl_kv_token *token = list->first;
    list->first = token == NULL ? NULL : token->next;
    return token;
}

static void free_all(struct sl_server_tokens *tokens)
{
    while (tokens->slabs != NULL) {
        struct token_slab *slab = tokens->slabs;
        tokens->slabs = slab->next;
        free(slab);
    }
    pthread_mutex_destroy(&tokens->lock);
    free(tokens);
}

/* token: put back at the same time; NULL: none. */
static void release(struct sl_server_tokens *tokens, struct sl_kv_token *token)
{
    pthread_mutex_lock(&tokens->lock);
    if (token != NULL) {
        token->state = TOKEN_FREE;
        list_append(&tokens->idle, token);
        tokens->idle_count++;
    }
    sl_assert(tokens->references > 0);
    const bool is_last = --tokens->references == 0;
    pthread_mutex_unlock(&tokens->lock);
    if (is_last) {
        free_all(tokens);
    }
}

/* The answer is not read any more. */
static void token_finish(struct sl_kv_token *token)
{
    const struct sl_kv_answer answer = token->answer;
    if (answer.sent != NULL) {
        answer.sent(answer.ctx);
    }
    release(token->tokens, token);
}

static bool add_slab(struct sl_server_tokens *tokens)
{
    struct token_slab *slab = calloc(1, sizeof *slab);
    if (slab == NULL) {
        return false;
    }
    slab->next = tokens->slabs;
    tokens->slabs = slab;
    for (uint32_t i = 0; i < SLAB_TOKENS; i++) {
        slab->tokens[i].tokens = tokens;
        list_append(&tokens->idle, &slab->tokens[i]);
    }
    tokens->idle_count += SLAB_TOKENS;
    return true;
}

int sl_server_tokens_create(struct sl_mailbox *mailbox, sl_server_token_answered_fn *answered,
                            struct sl_server_tokens **out)
{
    struct sl_server_tokens *tokens = calloc(1, sizeof *tokens);
    if (tokens == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    tokens->answered = answered;
    tokens->references = 1;
    const int err = sl_mailbox_lane_open(mailbox, &tokens->lane);
    if (err != 0) {
        free(tokens);
        return err;
    }
    pthread_mutex_init(&tokens->lock, NULL);
    *out = tokens;
    return 0;
}

/* Takes the answered tokens. */
static struct token_list take_arrived(struct sl_server_tokens *tokens, bool by_mail)
{
    pthread_mutex_lock(&tokens->lock);
    const struct token_list arrived = tokens->arrived;
    tokens->arrived = (struct token_list){0};
    tokens->is_announced = tokens->is_announced && !by_mail;
    pthread_mutex_unlock(&tokens->lock);
    return arrived;
}

/* Nobody waits for the answers: the server has ended. */
static void finish_arrived(struct sl_server_tokens *tokens, bool by_mail)
{
    struct token_list arrived = take_arrived(tokens, by_mail);
    struct sl_kv_token *token;
    while ((token = list_take(&arrived)) != NULL) {
        token_finish(token);
    }
}

/* The reactor has ended before it got the mail. */
static void on_mail_dropped(void *ctx)
{
    finish_arrived(ctx, true);
    release(ctx, NULL);
}

static void on_answers(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_server_tokens *tokens = ctx;
    struct token_list arrived = take_arrived(tokens, true);
    struct sl_kv_token *token;
    while ((token = list_take(&arrived)) != NULL) {
        if (token == tokens->offered) {
            sl_assert_fail("sl_kv_reply answers a request whose handler returned SL_KV_LATER",
                           __FILE__, __LINE__);
        }
        token->has_arrived = true;
        if (token->request == NULL) {
            token_finish(token);
        } else {
            tokens->answered(token->request, &token->answer);
        }
    }
    release(tokens, NULL);
}

void sl_server_tokens_close(struct sl_server_tokens **tokens)
{
    struct sl_server_tokens *closing = *tokens;
    *tokens = NULL;
    if (closing == NULL) {
        return;
    }
    if (closing->offered != NULL) {
        release(closing, closing->offered);
        closing->offered = NULL;
    }
    pthread_mutex_lock(&closing->lock);
    struct sl_mailbox_lane *lane = closing->lane;
    closing->lane = NULL;
    pthread_mutex_unlock(&closing->lock);
    finish_arrived(closing, false);
    sl_mailbox_lane_close(&lane);
    release(closing, NULL);
}

struct sl_kv_token *sl_server_token_offer(struct sl_server_tokens *tokens)
{
    if (tokens->offered != NULL) {
        return tokens->offered;
    }
    struct sl_kv_token *token = NULL;
    pthread_mutex_lock(&tokens->lock);
    if (tokens->idle_count > IDLE_TOKENS || add_slab(tokens)) {
        token = list_take(&tokens->idle);
        tokens->idle_count--;
        tokens->references++;
        token->state = TOKEN_OUT;
    }
    pthread_mutex_unlock(&tokens->lock);
    if (token != NULL) {
        token->request = NULL;
        token->has_arrived = false;
    }
    tokens->offered = token;
    return token;
}

void sl_server_token_bind(struct sl_kv_token *token, struct sl_server_request *request)
{
    if (token != NULL) {
        sl_assert(token == token->tokens->offered);
        token->tokens->offered = NULL;
        token->request = request;
    }
}

void sl_server_token_unbind(struct sl_kv_token *token)
{
    if (token != NULL) {
        token->request = NULL;
    }
    if (token != NULL && token->has_arrived) {
        token_finish(token);
    }
}

void sl_server_token_reply(struct sl_kv_token *token, const struct sl_kv_answer *answer)
{
    struct sl_server_tokens *tokens = token->tokens;
    pthread_mutex_lock(&tokens->lock);
    if (token->state != TOKEN_OUT) {
        sl_assert_fail("sl_kv_reply answers each token once", __FILE__, __LINE__);
    }
    token->state = TOKEN_ANSWERED;
    token->answer = *answer;
    const bool has_ended = tokens->lane == NULL;
    if (!has_ended) {
        list_append(&tokens->arrived, token);
    }
    if (!has_ended && !tokens->is_announced) {
        const struct sl_mail mail = {.run = on_answers, .ctx = tokens, .drop = on_mail_dropped};
        const int err = sl_mailbox_post(tokens->lane, mail);
        sl_assert(err == 0); /* there is one mail at most */
        tokens->is_announced = true;
        tokens->references++;
    }
    pthread_mutex_unlock(&tokens->lock);
    if (has_ended) {
        token_finish(token);
    }
}
