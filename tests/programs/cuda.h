/* For headers that include the toolkit's. */
#include "driver.h"
