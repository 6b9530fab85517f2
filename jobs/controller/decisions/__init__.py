"""What is due by what a controller that stays knows: the planner's cycle, asked again and again."""
