"""The inspector: shows the placement of ops and the transfers of one step. See `tfmini.show.inspection.api`."""
