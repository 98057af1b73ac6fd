/* The limit of whatever a test waits for and is not about: only a test that fails waits so long. */
#ifndef SL_TESTS_SUPPORT_PATIENCE_H
#define SL_TESTS_SUPPORT_PATIENCE_H

#define SL_TEST_PATIENCE_MS 400000
#define SL_TEST_PATIENCE_NS (400 * SL_CLOCK_NS_PER_S)

#endif
