# libstarling_transfer: the transfer engine and what it stands on.
starling_installed_library(starling_transfer starling-transfer sl_net_transfer starling_transfer.h)
