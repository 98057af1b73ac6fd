/* starling-ps: a ps, or the scheduler of a job, whose KV tables are added up. */
#include <starling_kv.h>
#include <stddef.h>

int main(int argc, char **argv)
{
    return sl_kv_serve(argc, argv, NULL);
}
